"""Query networks: operators spread over nodes, as frozen values, and the quantities derived from them."""

from __future__ import annotations

from penstock.network.builder import NetworkBuilder
from penstock.network.coefficients import Coefficients, Location
from penstock.network.model import Input, Network, Node, Operator, Output
from penstock.network.yaml_parser import load_network, parse_network

__all__ = [
    "Coefficients",
    "Input",
    "Location",
    "Network",
    "NetworkBuilder",
    "Node",
    "Operator",
    "Output",
    "load_network",
    "parse_network",
]
