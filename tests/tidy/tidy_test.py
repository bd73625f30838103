#!/usr/bin/env python3
"""The tidy test's own test: each rule checks a small tree that breaks the rule and one that keeps it."""

import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tidy  # noqa: E402
from cpp_shape import function_lengths  # noqa: E402
from tidy import tap  # noqa: E402


def complaints(rule, files, exceptions=""):
    """The rule's complaints about a tree of {path: text}."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            target = pathlib.Path(root) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        return list(rule(tidy.Tree(root, exceptions)))


def check_include_against_the_arrow():
    """An include against the arrow is refused, an include along the arrow is not"""
    rule = tidy.includes_point_one_way
    assert complaints(rule, {"src/core/a.h": '#include "plan/plan.h"\n'})
    assert complaints(rule, {"algorithms/a.cc": '#include "transports/link.h"\n'})
    assert complaints(rule, {"algorithms/a.cc": '#include "src/engine/engine.h"\n'})
    assert complaints(rule, {"src/comm/a.cc": '#include "tutti/tutti.h"\n'})
    assert complaints(rule, {"src/core/a.cc": '#include "../core/b.h"\n'})
    assert not complaints(rule, {"algorithms/a.cc": '#include "plan/plan.h"\n#include <vector>\n'})
    assert not complaints(rule, {"src/api/a.cc": '#include "tutti/tutti.h"\n#include "comm/comm.h"\n'})
    assert not complaints(rule, {"tests/api/a.cc": '#include "api/a.h"\n#include "perf/b.h"\n'})


def check_pure_layers():
    """Layers that decide may not see sockets, threads or devices"""
    rule = tidy.includes_point_one_way
    for header in ("sys/socket.h", "thread", "cuda_runtime.h", "unistd.h"):
        assert complaints(rule, {"algorithms/a.cc": f"#include <{header}>\n"}), header
        assert not complaints(rule, {"transports/tcp/a.cc": f"#include <{header}>\n"}), header


def check_file_length():
    """A file over the limit is refused; an exception holds it and must shrink with it"""
    rule = tidy.files_are_short
    long_file = {"src/core/a.cc": "int x;\n" * 801}
    assert complaints(rule, long_file)
    assert not complaints(rule, long_file, "file_length src/core/a.cc 801")
    assert complaints(rule, long_file, "file_length src/core/a.cc 802")
    assert complaints(rule, {"src/core/a.cc": "int x;\n" * 802}, "file_length src/core/a.cc 801")
    assert not complaints(rule, {"src/core/a.cc": "int x;\n" * 800})


def make_function(lines):
    return "namespace tutti {\nvoid walk(int x) {\n" + "  ++x;\n" * (lines - 2) + "}\n}  // namespace tutti\n"


def check_function_length():
    """A function over the limit is refused by name"""
    rule = tidy.functions_are_short
    assert not complaints(rule, {"src/core/a.cc": make_function(70)})
    found = complaints(rule, {"src/core/a.cc": make_function(71)})
    assert len(found) == 1 and "src/core/a.cc:walk: 71 lines" in found[0], found


def check_function_shapes():
    """Functions are distinguished from classes, tables, literals and member initialisers"""
    text = """
struct Table { int rows[2] = {1, 2}; };
class Walker final : public Base {
 public:
  explicit Walker(int n) : n_{n}, text_("{"), list_(n) {
    run();
  }
  int n() const { return n_; }  // a brace in a comment {
};
constexpr Row kRows[] = {
    {f(1), 2},
};
const char kBrace = '{';
TEST(ShapeTest, KnowsItsName) {
  const auto f = [](int x) {
    return R"(})" + 10'000;
  };
}
auto late() -> int {
  return 0;
}
"""
    assert function_lengths(text) == [("Walker", 5, 3), ("n", 8, 1), ("ShapeTest.KnowsItsName", 14, 5),
                                      ("late", 19, 3)], function_lengths(text)


def check_words_for_later():
    """Notes of unfinished work and paths of one machine are refused; templates of file names are not"""
    rule = tidy.nothing_is_left_for_later
    for word in ("TO" "DO", "FIX" "ME", "XX" "X", "/wo" "rk/main"):
        assert complaints(rule, {"docs/a.md": f"see {word}: later\n"}), word
    assert not complaints(rule, {"src/core/a.cc": "mkdtemp(/tmp/a-XXXX" "XX); // framework/main\n"})


def check_environment():
    """The environment is read only where exceptions.txt says"""
    rule = tidy.environment_is_read_in_one_file
    reader = {"src/comm/a.cc": 'auto x = std::getenv("X");\n'}
    assert complaints(rule, reader)
    assert not complaints(rule, reader, "environment src/comm/a.cc  # why")
    assert not complaints(rule, {"src/comm/a.cc": "// never getenv(x) here\n"})


def check_sleep():
    """A sleeping test is refused; the rule ignores a sleeping library"""
    rule = tidy.tests_do_not_sleep
    for call in ("std::this_thread::sleep_for(1ms);", "usleep(5);", "sleep(1);"):
        assert complaints(rule, {"tests/a/a_test.cc": call + "\n"}), call
        assert not complaints(rule, {"src/engine/a.cc": call + "\n"}), call


def check_guards():
    """A header needs a guard"""
    rule = tidy.headers_are_guarded
    assert complaints(rule, {"src/core/a.h": "int x;\n"})
    assert complaints(rule, {"src/core/a-inl.h": "int x;\n"})
    assert not complaints(rule, {"src/core/a-inl.h": "#if defined(A_H_) == defined(HWY_TARGET_TOGGLE)\n"})
    assert not complaints(rule, {"src/core/a.h": "// A.\n#pragma once\n"})
    assert not complaints(rule, {"include/tutti/a.h": "#ifndef A_H_\n#define A_H_\n#endif\n"})


def check_openings():
    """A file needs an opening comment and a snake_case name"""
    rule = tidy.files_open_with_a_comment
    assert complaints(rule, {"src/core/a.cc": "#include <x>\n"})
    assert complaints(rule, {"src/core/a.cc": "#include <x>\n", "src/core/a.h": "#pragma once\n"})
    assert not complaints(rule, {"src/core/a.cc": "#include <x>\n", "src/core/a.h": "// A.\n#pragma once\n"})
    assert not complaints(rule, {"src/core/a.cc": "// A: what it is.\n"})
    assert complaints(tidy.file_names_are_snake_case, {"src/core/MyFile.cc": "//\n"})
    assert not complaints(tidy.file_names_are_snake_case, {"src/core/my_file.cc": "//\n"})


def check_line_ends():
    """Trailing white space, a missing last newline and empty last lines are refused"""
    for text in ("a \n", "a\t\nb\n", "a", "a\n\n"):
        assert complaints(tidy.lines_end_clean, {"docs/a.md": text}), repr(text)
    assert not complaints(tidy.lines_end_clean, {"docs/a.md": "a\n\nb\n", "docs/empty.txt": ""})


def check_stale_exceptions():
    """An exception that no file needs is refused"""
    assert complaints(tidy.exceptions_are_needed, {"src/core/a.cc": "//\n"}, "sleep tests/a.cc")


def check_page_words():
    """A page over its limit is refused, and so are pages that are too long together; raw figures are not"""
    rule = tidy.pages_are_short
    assert complaints(rule, {"docs/a.md": "word " * 2501})
    assert complaints(rule, {"README.md": "word " * 901})
    assert complaints(rule, {"docs/decisions/0001-a.md": "word " * 401})
    assert complaints(rule, {f"docs/{number}.md": "word " * 2450 for number in range(9)})
    assert not complaints(rule, {"docs/a.md": "word " * 2500, "docs/measurements/a.md": "word " * 30000})


def check_page_lines():
    """A long line of a page is refused, in a table or in code it is not"""
    rule = tidy.page_lines_are_short
    assert complaints(rule, {"docs/a.md": "x" * 121})
    assert not complaints(rule, {"docs/a.md": "x" * 120 + "\n| " + "x" * 200 + " |\n```\n" + "x" * 200 + "\n```\n"})


def check_page_links():
    """A link to a file that is not there is refused"""
    rule = tidy.links_between_pages_resolve
    assert complaints(rule, {"docs/a.md": "[b](b.md)"})
    assert not complaints(rule, {"docs/a.md": "[b](b.md#part) [c](https://example.org)", "docs/b.md": ""})


if __name__ == "__main__":
    tap.run(tap.checks_of(globals()))
