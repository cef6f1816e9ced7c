"""nbformat, loaded without checkers that it never uses. Import it from here before anything else imports it.

nbformat imports jsonschema, and that two checkers of URIs and IRIs where they are installed, as they are with
JupyterLab. Building their grammars takes a second in every process, and no notebook's schema has a URI.
"""

from __future__ import annotations

import sys

_NEEDLESS = [name for name in ("rfc3986_validator", "rfc3987_syntax") if name not in sys.modules]

sys.modules.update(dict.fromkeys(_NEEDLESS))  # type: ignore[arg-type]  # their import fails; jsonschema does without
try:
    import nbformat
finally:
    for _name in _NEEDLESS:
        del sys.modules[_name]

__all__ = ["nbformat"]
