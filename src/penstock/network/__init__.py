"""Query networks: operators over nodes, as frozen values, and what follows from them."""

from __future__ import annotations

from penstock.network.builder import NetworkBuilder
from penstock.network.coefficients import Coefficients, Location
from penstock.network.model import Input, Network, Node, Operator, Output
from penstock.network.yaml_file import load_network, parse_network

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
