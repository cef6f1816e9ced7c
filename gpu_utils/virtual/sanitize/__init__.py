"""Sanitizers: what a launch does wrong although its result may be right, found while its machine code is executed.

`tools` names them, `report` says what was found, `order` knows what must have happened before what, `instrument` puts
them into a program, and a module each finds its kind of fault.
"""
