"""`python -m gpu_utils.cli` is `w2w`."""

from gpu_utils.cli.app import main

main()
