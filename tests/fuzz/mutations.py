"""Damaged variants of real compiler output: what truncation, bit rot, editors and malice make of a file."""

import random
import re

_NUMBER = re.compile(rb"\d+")
_WORD = re.compile(rb"[%#$.@!]?[\w.]+|[{}()\[\]<>,;:=]")
_EXTREMES = (b"0", b"-1", b"255", b"65536", b"2147483648", b"18446744073709551616", b"9" * 40, b"9" * 5000, b"1e999")
#: Bits of the grammars that the readers know, and what is often wrong in them.
WORDS = b"""
{ } ( ) [ ] < > , ; : = . " ' / * // /* */ @ ! % # ^ -> | _ \\ {} [] {[( ]}) "" '' .. :: {-# #-} [[[[ } ( -> null true
.version .target .entry .func .reg .loc .file .section .shared .local .param .align .branchtargets .reqntid .visible
.extern .b32 .pred .v4 %r0 %r<9>; %tid.x mov.b32 bra brx.idx ret; 0f3F800000 0x 0d -0 [%rd1+-4] {%r1,%r2} @!%p1
$L__BB0_1: inlined_at function_name module tt.func scf.for scf.if scf.yield tt.return loc( callsite( fused< at #loc1
#loc = #blocked tensor<128xf16> tensor< memdesc< !tt.ptr<f32> !ttg.memdesc< #ttg.blocked<{ dense< : i32 ^bb0 %0 %0:2
%0#1 attributes ttg.num-warps ttg.target affine_map< loc NaN Infinity 1e400 "target": {"backend": "arch":
""".split()
WORDS += [b"\n", b"\t", b"\0", b" ", b"\xff", b"\xc3\x28", "\u0660".encode(), "\u2028".encode()]
WORDS += [b"\x7fELF", b"\x04\x2f\x08\x00", b"\xff" * 8]


def _span(rng: random.Random, size: int, longest: int) -> tuple[int, int]:
    start = rng.randrange(size + 1)
    return start, min(size, start + rng.randrange(1, longest))


def mutate(rng: random.Random, content: bytes, others: list[bytes]) -> bytes:
    """``content`` after some changes: half of the time small ones that most readers take, else one to eight of any
    kind. ``others`` are donors of the same kind."""
    made = bytearray(content)
    if rng.random() < 0.5:
        for _ in range(rng.choice((1, 1, 2))):
            _edit(rng, made)
    else:
        for _ in range(rng.choice((1, 1, 2, 3, 8))):
            _damage(rng, made, others)
    return bytes(made)


def _edit(rng: random.Random, made: bytearray) -> None:
    """One change of the kind that keeps a file's shape: a word for another of the file, a line moved or doubled."""
    if rng.random() < 0.6:
        at = rng.randrange(len(made) + 1)
        words = list(_WORD.finditer(made, at, min(len(made), at + 300)))
        far = rng.randrange(len(made) + 1)
        donors = _WORD.findall(bytes(made[far : far + 300]))
        if words and donors:
            made[slice(*rng.choice(words).span())] = rng.choice(donors)
        return
    lines = bytes(made).split(b"\n")
    at = rng.randrange(len(lines))
    line = lines.pop(at)
    if rng.random() < 0.7:
        lines.insert(rng.randrange(len(lines) + 1), line)
    made[:] = b"\n".join(lines)


def _damage(rng: random.Random, made: bytearray, others: list[bytes]) -> None:
    """One change of any kind."""
    way, size = rng.randrange(10), len(made)
    at, end = _span(rng, size, 200)
    if way == 0 and size:
        made[rng.randrange(size)] ^= 1 << rng.randrange(8)
    elif way == 1:
        del made[at:end]
    elif way == 2:
        made[at:at] = made[slice(*_span(rng, size, 400))]
    elif way == 3:
        made[at:at] = rng.choice(WORDS)
    elif way == 4:
        made[at:end] = rng.choice(WORDS)
    elif way == 5:
        del made[at:]
    elif way == 6:
        donor = rng.choice(others)
        made[at:end] = donor[slice(*_span(rng, len(donor), 600))]
    elif way == 7:
        numbers = list(_NUMBER.finditer(made, at, min(size, at + 2000)))
        if numbers:
            made[slice(*rng.choice(numbers).span())] = rng.choice(_EXTREMES)
    elif way == 8:
        made[at:at] = rng.choice(WORDS) * rng.choice((10, 100, 1000, 3000))
    elif way == 9 and size > 8:
        start = rng.randrange(size - 8)
        made[start : start + 8] = rng.randbytes(8)
