"""The gateway: what goes to the model, what comes back, and what never does."""

import json

import pytest
from conftest_service import assistant  # noqa: F401
