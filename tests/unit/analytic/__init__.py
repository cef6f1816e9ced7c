"""The analytic models against things that are not ours."""
