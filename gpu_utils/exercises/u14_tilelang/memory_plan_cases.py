EXAMPLE = {}
DRAWN = ()
