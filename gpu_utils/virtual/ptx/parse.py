"""PTX text into plain data: functions, their instructions, data sections, source lines.

Nothing here knows what an instruction means. The grammar is that of the PTX ISA manual as far as Triton, clang,
NVRTC and hand-written inline assembly use it: scopes in braces with registers of their own, vector operands,
predicates, `.loc` lines, call sequences with `.param` variables, initialised `.global` and `.const` arrays.
One recursive descent, a method for each rule of the grammar: over 400 lines because it is read as one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn

from gpu_utils.errors import AsmSyntaxError
from gpu_utils.virtual.ptx.syntax import (
    Address,
    Function,
    Imm,
    Instruction,
    Not,
    Pair,
    Reg,
    Special,
    Symbol,
    Variable,
    Vector,
)

TYPE_BYTES = {
    **{f".{k}8": 1 for k in "bus"},
    **{f".{k}16": 2 for k in "busf"},
    **{f".{k}32": 4 for k in "busf"},
    **{f".{k}64": 8 for k in "busf"},
    ".bf16": 2,
    ".f16x2": 4,
    ".bf16x2": 4,
    ".pred": 1,
    ".b128": 16,
}

_TOKEN = re.compile(
    r"""
    (?P<skip>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<loc>\.loc\b[^\n]*)
  | (?P<file>\.file\b[^\n]*)
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<number>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?
        |\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?)
  | (?P<word>[.%$A-Za-z_][\w$]*(?:(?:\.|::)[\w$]+)*)
  | (?P<punct>[,;{}()\[\]<>@!=+\-|:*~])
    """,
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVES = {".reg", ".param", ".shared", ".global", ".const", ".local", ".visible", ".weak", ".extern"}
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)(?:\s+(\d+))?(?:.*?inlined_at\s+(\d+)\s+(\d+)(?:\s+(\d+))?)?")
_CHAIN = re.compile(r"@\[ ([^\s:]+):(\d+)")
_FILE = re.compile(r'\.file\s+(\d+)\s+"([^"]*)"')


@dataclass(slots=True)
class Module:
    version: str = ""
    target: str = ""
    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)


class _Scope:
    def __init__(self, parent: _Scope | None, number: int) -> None:
        self.parent, self.number = parent, number
        self.names: dict[str, Reg] = {}
        self.labels: dict[str, str] = {}


@lru_cache(maxsize=16)
def parse(text: str) -> Module:
    """The module that `text` declares; its kernels are decoded one by one, so the last few are kept: do not change it.

    Raises AsmSyntaxError, naming line and token, for text that is no PTX.

    >>> module = parse(".version 8.0\\n.target sm_80\\n.address_size 64\\n"
    ...                ".visible .entry k(.param .u64 p) { .reg .b32 %r<2>; mov.u32 %r1, 7; ret; }")
    >>> [i.opcode for i in module.functions["k"].body]
    ['mov.u32', 'ret']
    """
    return _Parser(text).module()


def _integer(text: str) -> int:
    text = text.rstrip("U")
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    if text[:2] in ("0b", "0B"):
        return int(text, 2)
    return int(text, 8) if len(text) > 1 and text[0] == "0" else int(text)


def _immediate(text: str) -> Imm:
    head = text[:2].lower()
    if head == "0f":
        return Imm(int(text[2:], 16), 32)
    if head == "0d":
        return Imm(int(text[2:], 16), 64)
    if "." in text or ("e" in text.lower() and head != "0x"):
        return Imm(float(text))
    return Imm(_integer(text))


def _renamed(operand, names: dict[str, str]):
    """The operand with the names of an inner scope replaced by their unique ones."""
    if type(operand) is Symbol and operand.name in names:
        return Symbol(names[operand.name], operand.offset)
    if type(operand) is Address:
        return Address(_renamed(operand.base, names), operand.offset, operand.coords)
    if type(operand) is Vector:
        return Vector(tuple(_renamed(item, names) for item in operand.items))
    return operand


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.out = Module()
        self.tokens: list[tuple[str, str, int]] = []
        position = 0
        append, match = self.tokens.append, _TOKEN.match
        while position < len(text):
            found = match(text, position)
            if found is None:
                self._fail(f"cannot read {text[position : position + 20]!r}", position)
            token = found.group()
            if token[0] == "." and token.rpartition(".")[0] in _DIRECTIVES:  # two that stand close: `.reg.b16`
                first, dot, second = token.rpartition(".")
                append(("word", first, position))
                append(("word", dot + second, position + len(first)))
            elif found.lastgroup != "skip":
                append((str(found.lastgroup), token, position))
            position = found.end()
        append(("end", "", len(text)))
        for kind, token, _ in self.tokens:
            if kind == "file" and (found := _FILE.match(token)):
                self.out.files[int(found[1])] = found[2]
        self.at = 0
        self.line: tuple[str, int] | None = None
        self.callers: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    # tokens -----------------------------------------------------------------------------------------------------
    def _fail(self, what: str, position: int | None = None) -> NoReturn:
        if position is None:
            position = self.tokens[min(self.at, len(self.tokens) - 1)][2]
        number = self.text.count("\n", 0, position) + 1
        line = [*self.text.splitlines(), ""][number - 1].strip()
        raise AsmSyntaxError(f"line {number} of the PTX text: {what}, in: {line}")

    def _peek(self) -> str:
        return self.tokens[self.at][1]

    def _next(self) -> str:
        token = self.tokens[self.at][1]
        self.at += 1
        return token

    def _take(self, token: str) -> bool:
        if self.tokens[self.at][1] == token:
            self.at += 1
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._take(token):
            self._fail(f"expected {token!r}, found {self._peek()!r}")

    def _int(self) -> int:
        sign = -1 if self._take("-") else 1
        kind, token, _ = self.tokens[self.at]
        if kind != "number":
            self._fail(f"expected a number, found {token!r}")
        self.at += 1
        return sign * _integer(token)

    # module -----------------------------------------------------------------------------------------------------
    def module(self) -> Module:
        out = self.out
        linkage = {".visible", ".extern", ".weak", ".common"}
        while True:
            kind, token, _ = self.tokens[self.at]
            if kind == "end":
                return out
            self.at += 1
            if kind in ("loc", "file") or token in linkage or token == ";":
                continue
            if token == ".version":
                out.version = self._next()
            elif token == ".target":
                out.target = self._next()
                while self._take(","):
                    self._next()
            elif token == ".address_size":
                if self._int() != 64:
                    self._fail("only 64-bit addresses are executed")
            elif token in (".entry", ".func"):
                self._function(token == ".entry")
            elif token in (".global", ".const", ".shared"):
                for variable in self._variables(token[1:]):
                    out.variables[variable.name] = variable
            elif token == ".section":
                self._next()
                self._skip_braces()
            elif token in (".pragma", ".alias"):
                while self._next() != ";":
                    pass
            else:
                self._fail(f"unknown directive {token!r}")

    def _skip_braces(self) -> None:
        self._expect("{")
        depth = 1
        while depth:
            token = self._next()
            if token == "{":
                depth += 1
            elif token == "}":
                depth -= 1
            elif self.tokens[self.at - 1][0] == "end":
                self._fail("a section without its closing brace")

    def _variables(self, space: str) -> list[Variable]:
        """The rest of a declaration such as `.align 4 .b8 name[16] = {1, 2};`."""
        align, element, vector = None, None, 1
        while self._peek().startswith("."):
            token = self._next()
            if token == ".align":
                align = self._int()
            elif token in TYPE_BYTES:
                element = TYPE_BYTES[token]
            elif token in (".v2", ".v4"):
                vector = int(token[2])
            elif token == ".attribute":
                self._expect("(")
                while not self._take(")"):
                    self._next()
            else:
                self._fail(f"unknown attribute {token!r} of a variable")
        if element is None:
            self._fail("a variable without a type")
        found = []
        while True:
            name = self._next()
            if self._take("<"):
                count = self._int()
                self._expect(">")
                names = [f"{name}{i}" for i in range(count)]
            else:
                names = [name]
            count = 1
            while self._take("["):
                count *= 0 if self._peek() == "]" else self._int()
                self._expect("]")
            init = self._initialiser() if self._take("=") else None
            if count == 0 and init is not None:
                count = len(init)
            for each in names:
                size = element * vector * count
                found.append(Variable(each, space, size, align or element * vector, init, element))
            if not self._take(","):
                break
        self._expect(";")
        return found

    def _initialiser(self) -> list:
        """Numbers and symbols, flattened, in order."""
        if self._take("{"):
            items: list = []
            while not self._take("}"):
                items += self._initialiser()
                self._take(",")
            return items
        kind, token, _ = self.tokens[self.at]
        if kind == "word":
            self.at += 1
            if token == "generic":
                self._expect("(")
                token = self._next()
                self._expect(")")
            offset = self._int() if self._take("+") else 0
            return [Symbol(token, offset)]
        sign = -1 if self._take("-") else 1
        literal = _immediate(self._next())
        return [Imm(sign * literal.value, literal.width)]

    # functions --------------------------------------------------------------------------------------------------
    def _params(self) -> list[Variable]:
        """`(.param .u64 .ptr .global .align 1 name, ...)` with the offsets of a packed buffer."""
        self._expect("(")
        params: list[Variable] = []
        offset = 0
        while not self._take(")"):
            space = self._next()
            if space not in (".param", ".reg"):
                self._fail(f"expected .param, found {space!r}")
            align, size = 0, 0
            pointer = False
            while self._peek().startswith("."):
                token = self._next()
                if token == ".align":
                    value = self._int()
                    align = align if pointer else value
                elif token == ".ptr":
                    pointer = True
                elif token in TYPE_BYTES:
                    size = TYPE_BYTES[token]
                elif token not in (".global", ".shared", ".const", ".local"):
                    self._fail(f"unknown attribute {token!r} of a parameter")
            if not size:
                self._fail("a parameter without a type")
            name = self._next()
            element = size
            while self._take("["):
                size *= 0 if self._peek() == "]" else self._int()
                self._expect("]")
            align = align or element
            offset = -(-offset // align) * align
            params.append(Variable(name, space[1:], size, align, None, element, offset))
            offset += size
            self._take(",")
        return params

    def _function(self, entry: bool) -> None:
        returns = self._params() if self._peek() == "(" else []
        name = self._next()
        function = Function(name, entry, returns=returns)
        if self._peek() == "(":
            function.params = self._params()
        while self._peek().startswith(".") or self.tokens[self.at][0] == "loc":
            token = self._next()
            if self.tokens[self.at - 1][0] in ("loc", "file"):
                continue
            values: list[int] = []
            while self.tokens[self.at][0] == "number":
                values.append(self._int())
                self._take(",")
            if token == ".pragma":
                self._next()
            function.directives[token[1:]] = values
        if self._take(";"):
            self.out.functions.setdefault(name, function)
            return
        self._expect("{")
        function.defined = True
        self.function, self.scopes = function, 0
        self.line = None
        root = _Scope(None, 0)
        for variable in (*returns, *function.params):
            if variable.space == "reg":
                self._register(root, variable.name, {1: "16", 2: "16", 4: "32", 8: "64"}[variable.size])
        self._block(root)
        self.out.functions[name] = function

    def _register(self, scope: _Scope, name: str, kind: str) -> Reg:
        counts = self.function.registers
        reg = Reg(kind, counts[kind], name)
        counts[kind] += 1
        scope.names[name] = reg
        return reg

    def _block(self, scope: _Scope) -> None:
        """Statements up to the closing brace; labels of this scope are resolved when it ends."""
        function, body = self.function, self.function.body
        start = len(body)
        while True:
            kind, token, _ = self.tokens[self.at]
            self.at += 1
            if kind == "loc":
                self._location(token)
            elif kind == "file" or token == ";":
                pass
            elif token == "{":
                self.scopes += 1
                self._block(_Scope(scope, self.scopes))
            elif token == "}":
                break
            elif kind == "end":
                self._fail(f"function {function.name} has no closing brace")
            elif token[0] == ".":
                self._declaration(scope, token)
            elif kind == "word" and self._peek() == ":":
                self.at += 1
                unique = token if scope.number == 0 else f"{token}@{scope.number}"
                scope.labels[token] = unique
                function.labels[unique] = len(body)
                self.last_label = unique
            else:
                self.at -= 1
                body.append(self._instruction(scope))
        if scope.number and scope.labels:
            for instruction in body[start:]:
                instruction.operands = tuple(_renamed(o, scope.labels) for o in instruction.operands)

    def _location(self, token: str) -> None:
        found = _LOC.match(token)
        if not found:
            return
        here, caller = found.group(1, 2, 3), found.group(4, 5, 6)
        if caller[0]:
            self.callers[here] = caller
        seen = set()
        while caller[0] and caller not in seen and not self.out.files.get(int(here[0]), "").endswith(".cu"):
            seen.add(caller)
            here, caller = caller, self.callers.get(caller, (None, None, None))
        chain = _CHAIN.findall(token)
        if chain and not found[4]:  # line tables without variables name the callers in a comment only
            own = (self.out.files.get(int(here[0]), ""), here[1])
            in_cpp = (place for place in (own, *chain) if place[0].endswith(".cu") and place[1] != "0")
            name, number = next(in_cpp, chain[-1])  # in C++, the line in the function that the source itself defines
            path = next((path for path in self.out.files.values() if path.rsplit("/", 1)[-1] == name), name)
            self.line = (path, int(number))
        elif int(here[1]):
            self.line = (self.out.files.get(int(here[0]), ""), int(here[1]))

    def _declaration(self, scope: _Scope, token: str) -> None:
        if token == ".reg":
            kind_name = self._next()
            if kind_name not in TYPE_BYTES:
                self._fail(f"registers of type {kind_name!r} are not executed")
            kind = "pred" if kind_name == ".pred" else {1: "16", 2: "16", 4: "32", 8: "64"}.get(TYPE_BYTES[kind_name])
            if kind is None:
                self._fail(f"registers of type {kind_name!r} are not executed")
            while True:
                name = self._next()
                if self._take("<"):
                    count = self._int()
                    self._expect(">")
                    for i in range(count):
                        self._register(scope, f"{name}{i}", kind)
                else:
                    self._register(scope, name, kind)
                if not self._take(","):
                    break
            self._expect(";")
        elif token in (".local", ".shared", ".param", ".global", ".const"):
            found = self._variables(token[1:])
            for variable in found:
                if scope.number:
                    scope.labels[variable.name] = f"{variable.name}@{scope.number}"
                    variable.name = scope.labels[variable.name]
            self.function.variables += found
        elif token == ".pragma":
            while self._next() != ";":
                pass
        elif token == ".branchtargets":
            names = []
            while not self._take(";"):
                names.append(self._next())
                self._take(",")
            self.function.targets[self.last_label] = names
        elif token == ".callprototype":  # of a call through a pointer, which the decoder refuses by name
            while self._next() != ";":
                pass
        else:
            self._fail(f"unknown directive {token!r} in a function")

    def _instruction(self, scope: _Scope) -> Instruction:
        begin = self.tokens[self.at][2]
        pred, negated = None, False
        if self._take("@"):
            negated = self._take("!")
            name = self._next()
            pred = self._lookup(scope, name)
            if pred is None or pred.kind != "pred":
                self._fail(f"{name!r} guards an instruction but is no predicate register")
        kind, opcode, _ = self.tokens[self.at]
        if kind != "word":
            self._fail(f"expected an instruction, found {opcode!r}")
        self.at += 1
        operands = []
        while not self._take(";"):
            operands.append(self._operand(scope))
            if not self._take(",") and self._peek() != ";":
                self._fail(f"expected ',' or ';' after an operand, found {self._peek()!r}")
        text = " ".join(self.text[begin : self.tokens[self.at - 1][2]].split())
        return Instruction(opcode, tuple(operands), pred, negated, self.line, text, scope.number)

    def _lookup(self, scope: _Scope | None, name: str) -> Reg | None:
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None

    def _operand(self, scope: _Scope):
        token = self._peek()
        if token == "{":
            return self._list(scope, "{", "}")
        if token == "(":
            return self._list(scope, "(", ")")
        if token == "[":
            self.at += 1
            base = self._operand(scope)
            offset, coords = 0, None
            if isinstance(base, Symbol):
                base, offset = Symbol(base.name), base.offset
            while self._peek() in ("+", "-"):
                sign = -1 if self._next() == "-" else 1
                wrapped = self._take("(")
                offset += sign * self._int()
                if wrapped:
                    self._expect(")")
            if self._take(","):
                coords = self._operand(scope)
            self._expect("]")
            return Address(base, offset, coords)
        if token == "!":
            self.at += 1
            reg = self._operand(scope)
            if not isinstance(reg, Reg):
                self._fail("'!' needs a predicate register")
            return Not(reg)
        if token in ("-", "+"):
            self.at += 1
            literal = self._operand(scope)
            if not isinstance(literal, Imm):
                self._fail(f"{token!r} needs a number")
            return Imm(-literal.value if token == "-" else literal.value, literal.width)
        kind = self.tokens[self.at][0]
        self.at += 1
        if kind == "number":
            return _immediate(token)
        if kind != "word":
            self._fail(f"expected an operand, found {token!r}")
        if token == "WARP_SZ":
            return Imm(32)
        found: object = self._lookup(scope, token)
        if found is None:
            found = Special(token) if token[0] == "%" and token not in self.function.labels else Symbol(token)
            if isinstance(found, Symbol) and self._peek() == "+":
                self.at += 1
                found = Symbol(token, self._int())
        if self._take("|"):
            return Pair(found, self._operand(scope))
        return found

    def _list(self, scope: _Scope, opening: str, closing: str) -> Vector:
        self._expect(opening)
        items = []
        while not self._take(closing):
            items.append(self._operand(scope))
            self._take(",")
        return Vector(tuple(items))
