"""The instructions that the course has met, what each does, and the chapter of the manual that explains it.

Chapters of NVIDIA's are those of the PTX ISA manual, "Instructions"; of AMD's those of the "Instruction Set
Architecture Reference Guide" of CDNA 3, whose other editions name them alike.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from gpu_utils.chips.targets import TARGETS
from gpu_utils.compiler.reading import HasAssembly, mnemonics
from gpu_utils.errors import BadArgument


@dataclass(frozen=True)
class Entry:
    """name: as a reader looks for it; pattern: of its mnemonics; met: the unit whose lesson first names it."""

    name: str
    pattern: str
    does: str
    chapter: str
    met: str


_MOVE = "Data Movement and Conversion"
_SYNC = "Parallel Synchronization and Communication"
_COMPARE = "Comparison and Selection"
_FLOW = "Control Flow"
_INTEGER, _FLOAT = "Integer Arithmetic", "Floating Point"

PTX = (
    Entry("ld.param", r"ld\.param", "an argument of the launch", _MOVE, "07"),
    Entry("ld.shared, st.shared", r"(ld|st)\.shared", "shared memory, a lane's own address", _MOVE, "06"),
    Entry(
        "ldmatrix, stmatrix",
        r"(ld|st)matrix",
        "8 x 8 blocks between shared memory and lanes",
        "Warp Level Matrix",
        "05",
    ),
    Entry("ld.global", r"(ld|ldu)\b", "memory to registers", _MOVE, "00"),
    Entry("st.global", r"st\b", "registers to memory", _MOVE, "00"),
    Entry("cp.async.bulk", r"cp\.(async|reduce)\.bulk", "TMA: a tile, told to an mbarrier", _MOVE, "07"),
    Entry("cp.async", r"cp\.async", "memory to shared memory, past the registers; commit, wait", _MOVE, "04"),
    Entry("tensormap, prefetch", r"tensormap|prefetch", "the description of a tensor for TMA", _MOVE, "07"),
    Entry("cvt, cvta", r"cvta?\b", "another type; another address space", _MOVE, "07"),
    Entry("prmt", r"prmt", "any four bytes of two words", _MOVE, "03"),
    Entry("mov", r"mov\b|mapa|isspacep|szext", "a register, a constant, %tid.x", _MOVE, "00"),
    Entry("shfl.sync", r"shfl", "the value of another lane", _MOVE, "04"),
    Entry("setp, selp", r"set|selp|slct", "a predicate; one of two values by it", _COMPARE, "00"),
    Entry(
        "fma, add, mul, ex2 (.f32)",
        r"(fma|add|sub|mul|mad|max|min|neg|abs|div|rcp|sqrt|rsqrt|ex2|lg2|sin|cos|tanh|copysign)"
        r"\b.*\.(f16x2|f16|bf16x2|bf16|f32x2|f32|f64)",
        "arithmetic; approximations",
        _FLOAT,
        "00",
    ),
    Entry(
        "add, mad, mul.wide (.s32)",
        r"(add|sub|mul|mad|mul24|mad24|sad|div|rem|abs|neg|max|min|popc|clz|bfind|bfe|bfi|brev"
        r"|fns|dp4a|dp2a|addc|subc|madc)\b",
        "arithmetic of addresses",
        _INTEGER,
        "07",
    ),
    Entry("and, or, shl, lop3", r"(and|or|xor|not|cnot|shl|shr|lop3|shf)\b", "bits", "Logic and Shift", "07"),
    Entry("bra, ret", r"bra\b|brx|ret\b|exit|call|trap", "where the lanes go on", _FLOW, "00"),
    Entry("bar.sync, bar.warp.sync", r"bar(rier)?\b", "waits for the block, or for a warp", _SYNC, "07"),
    Entry("fence, membar", r"fence|membar", "orders what others see", _SYNC, "07"),
    Entry("atom, red", r"(atom|red)\b", "reads and writes as one; without an answer", _SYNC, "07"),
    Entry("vote, match, redux", r"vote|match|redux|activemask|elect", "what all lanes hold", _SYNC, "04"),
    Entry("mbarrier", r"mbarrier", "counts arrivals and bytes", _SYNC, "07"),
    Entry("mma.sync", r"mma\.", "a warp multiplies small matrices", "Warp Level Matrix", "03"),
    Entry(
        "wgmma", r"wgmma", "four warps, asynchronous; fence, commit, wait", "Asynchronous Warpgroup Level Matrix", "03"
    ),
    Entry("tcgen05", r"tcgen05", "one thread, sums in tensor memory", "TensorCore 5th Generation", "03"),
    Entry(
        "nanosleep, griddepcontrol",
        r"nanosleep|griddepcontrol|setmaxnreg|pmevent|brkpt",
        "others",
        "Miscellaneous",
        "07",
    ),
)

_FLOW_AMD, _SALU, _VALU = "Program Flow Control", "Scalar ALU Operations", "Vector ALU Operations"
_SMEM, _VMEM, _MATRIX = "Scalar Memory Operations", "Vector Memory Operations", "Matrix Arithmetic"
_FLAT, _LDS = "Flat Memory Instructions", "Data Share Operations"

AMDGCN = (
    Entry("s_load", r"s_(buffer_)?load", "memory to scalar registers: SMEM", _SMEM, "00"),
    Entry("s_dcache, s_memtime", r"s_(dcache|memtime|memrealtime|gl1|icache)", "others of SMEM", _SMEM, "07"),
    Entry("s_waitcnt, s_wait_...", r"s_wait", "waits for memory", _FLOW_AMD, "00"),
    Entry("s_barrier", r"s_barrier", "waits for the block", _FLOW_AMD, "07"),
    Entry(
        "s_cbranch, s_branch, s_endpgm",
        r"s_(c?branch|endpgm|setpc|swappc|getpc|trap|call)",
        "where the wave goes on",
        _FLOW_AMD,
        "00",
    ),
    Entry(
        "s_nop, s_delay_alu, s_sleep",
        r"s_(nop|delay_alu|sleep|clause|setprio|sethalt|code_end|inst_prefetch|set_vgpr|sched)",
        "time between instructions",
        _FLOW_AMD,
        "03",
    ),
    Entry("s_and_saveexec", r"s_\w+_saveexec", "EXEC: narrows it, keeps the old one", _SALU, "00"),
    Entry("s_add, s_cmp, s_mov", r"s_", "one value for the wave; SCC", _SALU, "02"),
    Entry("v_mfma, v_wmma, v_smfmac", r"v_(s?mfma|smfmac|s?wmma)", "a wave multiplies small matrices", _MATRIX, "03"),
    Entry("v_accvgpr", r"v_accvgpr", "between VGPRs and AGPRs", _MATRIX, "03"),
    Entry("v_cmp, v_cndmask", r"v_(cmpx?|cndmask)", "a mask in VCC; one of two values by it", _VALU, "00"),
    Entry("v_perm", r"v_perm_b32", "any four bytes of two words", _VALU, "03"),
    Entry(
        "v_readlane, v_permlane",
        r"v_(readfirstlane|readlane|writelane|permlane)",
        "other lanes, past memory",
        _VALU,
        "04",
    ),
    Entry("v_exp, v_pk_add, v_...", r"v_", "arithmetic of all lanes that are on", _VALU, "00"),
    Entry("global_load, global_store", r"global_(load|store)", "memory and registers (or LDS)", _FLAT, "00"),
    Entry("global_atomic", r"(global|flat)_atomic", "reads and writes as one", _FLAT, "03"),
    Entry("scratch", r"scratch_", "a lane's own memory: spills", _FLAT, "03"),
    Entry("flat, global_wb", r"flat_|global_(inv|wb)", "any address; caches on gfx12", _FLAT, "07"),
    Entry("buffer_load, buffer_store", r"buffer_(load|store|atomic)", "memory with bounds: MUBUF", _VMEM, "00"),
    Entry("buffer_wbl2, buffer_inv", r"buffer_(wb|inv|gl)", "caches: written back, forgotten", _VMEM, "07"),
    Entry("ds_bpermute, ds_swizzle", r"ds_(b?permute|swizzle)", "other lanes, through the LDS unit", _LDS, "03"),
    Entry("ds_read, ds_write", r"ds_", "the LDS; ds_load, ds_store on gfx11", _LDS, "05"),
    Entry("tensor_load_to_lds", r"tensor_|cluster_", "tiles, on gfx1250", "LLVM, AMDGPU usage", "07"),
)
_TABLES = {"nvidia": PTX, "amd": AMDGCN}


def entry_of(mnemonic: str, vendor: str) -> Entry:
    """The line of the index for a mnemonic. Raises BadArgument where there is none.

    >>> entry_of("cp.async.wait_group", "nvidia").name, entry_of("ds_read_b64", "amd").name
    ('cp.async', 'ds_read, ds_write')
    """
    for entry in _TABLES[vendor]:
        if re.match(entry.pattern, mnemonic):
            return entry
    raise BadArgument(f"the index of instructions has no line for {mnemonic}")


def instruction_index(*listings: HasAssembly) -> dict[str, dict[str, str | int]]:
    """The index of one vendor, for `lesson.table`, with how often each line of it stands in some listings.

    listings  compiled kernels of one vendor, or kernels written by hand; at least one
    """
    vendors = {TARGETS[listing.target].vendor for listing in listings}
    if len(vendors) != 1:
        raise BadArgument("pass listings of one vendor: instruction_index(compile_for(kernel, 'gfx942', ...))")
    vendor = vendors.pop()
    here: Counter[str] = Counter()
    for listing in listings:
        for mnemonic, times in mnemonics(listing).items():
            here[entry_of(mnemonic, vendor).name] += times
    return {
        one.name: {"does": one.does, "in the listings": here[one.name], "met in": one.met, "chapter": one.chapter}
        for one in _TABLES[vendor]
    }
