"""A virtual Ascend AI core: AscendC as TileLang lowers it, compiled for the host and run with its pipes and flags."""
