"""The shape of C++ sources, for rules about length: text without comments, functions by braces.

Not a parser: braces are matched after comments and literals are blanked out, and a block at namespace or class
level whose head has an argument list is a function. Unbalanced branches of conditional compilation confuse it.
"""

import re

_TOKENS = re.compile(
    r'//(?:\\\n|[^\n])*'
    r'|/\*.*?\*/'
    r'|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'",
    re.DOTALL)
_CONTAINER = re.compile(r'\b(?:namespace|class|struct|union|enum)\b|\bextern\s*$')
_MEMBER_INITIALISER = re.compile(r'\)[^;{}]*[^:]:[^:].*[\w>]\s*$', re.DOTALL)


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def without_comments(text):
    """The text with comments blanked, line numbers kept."""
    return _TOKENS.sub(lambda m: _blank(m.group()) if m.group().startswith("/") else m.group(), text)


def _code_only(text):
    """Comments, literals and preprocessor lines blanked."""
    text = _TOKENS.sub(lambda m: _blank(m.group()), text)
    return re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", lambda m: _blank(m.group()), text, flags=re.MULTILINE)


def _kind(head, inside_code):
    """The kind of block after `head` and a brace: container, function, initialiser (the head goes on) or other."""
    if inside_code:
        return "other"
    head = head.strip()
    if not head or head.endswith(("=", ",", "(")) or "(" not in head:
        return "container" if _CONTAINER.search(head) or not head else "other"
    if _CONTAINER.search(head.split("(")[0]) and not head.split("(")[0].rstrip()[-1:].isidentifier():
        return "container"
    if _MEMBER_INITIALISER.search(head):
        return "initialiser"
    return "function"


def _name(head):
    """TEST(A, B) by its arguments, else the word before the argument list."""
    macro = re.search(r"\b(TEST\w*|TYPED_TEST\w*|BENCHMARK\w*)\s*\(([^)]*)\)", head)
    if macro:
        return re.sub(r"\s*,\s*", ".", macro.group(2).strip())
    match = re.search(r"(operator\s*\S+?|[\w:~]+)\s*\(", head)
    return match.group(1).replace(" ", "") if match else "?"


def function_lengths(text):
    """(name, first line, lines) of every function, from its opening brace to its closing one."""
    stack = []
    head = ""
    line = 1
    functions = []
    for character in _code_only(text):
        if character == "\n":
            line += 1
        if character == "{":
            inside_code = any(kind not in ("container",) for kind, _, _ in stack)
            kind = _kind(head, inside_code)
            stack.append((kind, line, head))
            head = head if kind == "initialiser" else ""
        elif character == "}":
            if stack:
                kind, first, opened_by = stack.pop()
                if kind == "function":
                    functions.append((_name(opened_by), first, line - first + 1))
                head = opened_by + "_" if kind == "initialiser" else ""
        elif character == ";" and not any(kind == "initialiser" for kind, _, _ in stack):
            head = ""
        else:
            head += character
    return functions
