"""Zaia: the durable engine around customer-service agents. See DESIGN in the README."""
