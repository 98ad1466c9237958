#!/usr/bin/env python3
"""One screen per idea: files of at most 400 lines, ./dev too, functions of at most 60, __global__ bodies of at most 40, and in the
library (include, src) functions of at most 7 parameters, also where they are only declared. A file of more than 300 lines is named, as advice.

usage: check_sizes.py [ROOT]
A function's length runs from its opening to its closing brace, both counted.
"""

import ast
import re
import sys

import sources

MAX_FILE, MAX_FUNCTION, MAX_KERNEL, MAX_PARAMETERS = 400, 60, 40, 7
LONG_FILE = 300
FOLDERS = ("include", "src", "tool", "python", "python-deepep", "tests", "benchmarks", "examples", "tools", "cmake")
WITHOUT_SUFFIX = ("dev", ".ci/run")
NOT_A_FUNCTION = re.compile(r"^\s*(\w+\s+)*(namespace|class|struct|union|enum|extern|concept)\b(?![^{]*\)\s*(const|noexcept|override|final|\s)*$)")
FUNCTION_HEAD = re.compile(r"(?P<name>[~\w]+|operator\s*\S+)\s*\(")
# Words before a name that have parentheses of their own: __launch_bounds__(512, 1) void kernel(Params p).
ATTRIBUTE = re.compile(r"\b(__launch_bounds__|__attribute__|__align__|alignas|explicit|requires|decltype|noexcept)\s*\(")
NOT_A_DECLARATION = re.compile(r"^\s*(static_assert|using|typedef|return|friend\s+class|throw|delete)\b")
DECLARATION_END = re.compile(r"\)\s*(const|noexcept|override|final|&|\s)*(=\s*(0|default|delete)\s*)?$")


def functions_of(text):
    """[(name, line, lines, is a kernel, parameters)] of the outermost functions of C++ text: the line of the opening
    brace; a declaration without a body has 0 lines."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", sources.blanked, sources.code_of(text), flags=re.MULTILINE)
    found, head, stack, open_function = [], "", [], None
    for position, character in enumerate(code):
        if character == "{":
            is_function = open_function is None and is_function_head(head)
            stack.append((is_function, head))
            if is_function:
                open_function = (head, position)
            elif open_function is None and not is_initialiser(head):
                head = ""
        elif character == "}" and stack:
            was_function, outer_head = stack.pop()
            if was_function:
                function_head, start = open_function
                first_line = code.count("\n", 0, start) + 1
                lines = code.count("\n", start, position) + 1
                name, parameters = signature_of(function_head)
                found.append((name, first_line, lines, "__global__" in function_head, parameters))
                open_function = None
            if open_function is None:
                head = outer_head + "{}" if not was_function and is_initialiser(outer_head) else ""
        elif open_function is None and character == ";":
            if is_declaration(head):
                name, parameters = signature_of(head)
                found.append((name, code.count("\n", 0, position) + 1, 0, False, parameters))
            head = ""
        elif open_function is None:
            head += character
    return found


def without_attributes(head):
    """The head without the parentheses that follow an attribute, and without the attribute."""
    while match := ATTRIBUTE.search(head):
        end = match.end() + parameters_of(head[match.end():])[1]
        head = head[:match.start()] + head[end + 1:]
    return head


def signature_of(head):
    """(name, parameters) of the head of a function."""
    head = without_attributes(head)
    match = FUNCTION_HEAD.search(head)
    return (match.group("name"), parameters_of(head[match.end():])[0]) if match else ("", 0)


def parameters_of(text):
    """How many parameters there are between an opening parenthesis, which is not in the text, and its closing one; and
    where that is."""
    depth, commas, empty, position = 0, 0, True, 0
    for position, character in enumerate(text):
        if depth == 0 and character == ")":
            break
        if character in "([{<":
            depth += 1
        elif character in ")]}" or (character == ">" and text[position - 1] != "-"):
            depth -= 1
        elif depth == 0 and character == ",":
            commas += 1
        empty = empty and character.isspace()
    return 0 if empty else commas + 1, position


def is_declaration(head):
    """A function that is declared here and has its body elsewhere, not a variable that is initialised."""
    match = FUNCTION_HEAD.search(without_attributes(head))
    return bool(match) and not NOT_A_DECLARATION.match(head) and "=" not in without_attributes(head)[:match.start()] \
        and bool(DECLARATION_END.search(head))


def is_initialiser(head):
    """The brace after this head holds a value (a default, or a member in a constructor's list), not a body."""
    return bool(re.search(r"(=|return|,|\()\s*$", head)) or bool(re.search(r"\)\s*(noexcept\s*)?:[^:]?.*\w\s*$", head, re.DOTALL))


def is_function_head(head):
    if is_initialiser(head) or NOT_A_FUNCTION.match(head):
        return False
    return FUNCTION_HEAD.search(head) is not None


def check_cxx(path, text):
    findings = []
    for name, line, lines, is_kernel, parameters in functions_of(text):
        limit = MAX_KERNEL if is_kernel else MAX_FUNCTION
        if lines > limit:
            findings.append(f"{path}:{line}: {name} has {lines} lines (limit {limit})")
        if parameters > MAX_PARAMETERS and path.startswith(("include/", "src/")):
            findings.append(f"{path}:{line}: {name} has {parameters} parameters (limit {MAX_PARAMETERS})")
    return findings


def check_python(path, text):
    return [f"{path}:{node.lineno}: {node.name} has {node.end_lineno - node.lineno + 1} lines (limit {MAX_FUNCTION})"
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno + 1 > MAX_FUNCTION]


def check_bash(path, text):
    functions = re.finditer(r"^(\w+)\(\) {\n.*?^}$", text, re.MULTILINE | re.DOTALL)
    return [f"{path}: {match.group(1)} has {match.group().count(chr(10)) + 1} lines (limit {MAX_FUNCTION})"
            for match in functions if match.group().count("\n") >= MAX_FUNCTION]


def check_file(path, text):
    lines = text.count("\n")
    findings = [f"{path}: {lines} lines (limit {MAX_FILE})"] if lines > MAX_FILE else []
    if path.endswith(sources.CXX_SUFFIXES):
        findings += check_cxx(path, text)
    elif path.endswith(".py"):
        findings += check_python(path, text)
    elif path.endswith(".sh") or path in WITHOUT_SUFFIX:
        findings += check_bash(path, text)
    return findings


def main():
    root = sources.root_argument()
    files = sources.files_under(root, FOLDERS, sources.CXX_SUFFIXES + (".py", ".sh", ".cmake"))
    files += [(name, (root / name).read_text(encoding="utf-8")) for name in WITHOUT_SUFFIX if (root / name).is_file()]
    for path, text in files:
        if LONG_FILE < text.count("\n") <= MAX_FILE:
            print(f"advice: {path} has {text.count(chr(10))} lines: is it one idea?")
    return sources.finish("sizes", len(files), [finding for file in files for finding in check_file(*file)])


if __name__ == "__main__":
    sys.exit(main())
