"""mdoc: what the generators of man pages share."""

import re

DATE = "November 24, 2026"


def plain(text):
    """Text that mandoc takes as it stands."""
    text = text.replace("\\", "\\e")
    return re.sub(r"^(?=[.'])", r"\\&", text, flags=re.MULTILINE)


def head(name, section, version):
    return f".Dd {DATE}\n.Dt {name.upper()} {section}\n.Os tutti {version}\n"
