#!/usr/bin/env python3
"""Writes a C++ file that holds a text file: embed_text.py INPUT OUTPUT HEADER FUNCTION.

OUTPUT defines `std::string_view tutti::FUNCTION()`, declared in HEADER.
"""
import sys

ESCAPES = {'\\': '\\\\', '"': '\\"', '\t': '\\t', '?': '\\?'}


def main():
    source, target, header, function = sys.argv[1:]
    with open(source, encoding='ascii') as file:
        lines = file.read().splitlines()
    literals = ['    "' + ''.join(ESCAPES.get(c, c) for c in line) + '\\n"\n' for line in lines]
    with open(target, 'w', encoding='ascii') as file:
        file.write(f'#include "{header}"\n\nnamespace tutti {{\n\n'
                   f'std::string_view {function}() {{\n  return\n{"".join(literals)}    "";\n}}\n\n'
                   f'}}  // namespace tutti\n')


if __name__ == '__main__':
    main()
