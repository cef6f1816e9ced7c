"""Grading a class: releases, submissions that nobody trusts, a gradebook, feedback."""
