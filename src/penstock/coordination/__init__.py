"""Coordinated shedding: who decides what a node lets in, and the messages between nodes and a coordinator."""

from __future__ import annotations

from penstock.coordination.cluster_coordinator import ClusterCoordinator
from penstock.coordination.coordinator import Coordinator
from penstock.coordination.dfit import DFit
from penstock.coordination.dfit_planner import DFitPlanner
from penstock.coordination.follower import COORDINATOR, Follower
from penstock.coordination.local import Local
from penstock.coordination.mailbox import DirectoryMailbox, Mailbox, Message
from penstock.coordination.manager import Fixed, Limits, Manager, NoShedding
from penstock.coordination.managers import CENTRAL, MANAGERS, manager_named
from penstock.coordination.measurements import Measurements, OperatorMeasurements

__all__ = [
    "CENTRAL",
    "COORDINATOR",
    "ClusterCoordinator",
    "Coordinator",
    "DFit",
    "DFitPlanner",
    "DirectoryMailbox",
    "Fixed",
    "Follower",
    "Limits",
    "Local",
    "MANAGERS",
    "Mailbox",
    "Manager",
    "Measurements",
    "Message",
    "NoShedding",
    "OperatorMeasurements",
    "manager_named",
]
