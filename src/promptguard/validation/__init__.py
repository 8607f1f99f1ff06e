"""Measuring the guard on labelled data."""
