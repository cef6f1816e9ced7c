"""What the row of a target says is what its decoder takes."""

import pytest

from gpu_utils.chips import TARGETS
from gpu_utils.errors import UnknownName, UnsupportedInstruction
from gpu_utils.virtual import MODELS, virtual_gpu
from gpu_utils.virtual.amdgcn import decode as decode_amdgcn
from gpu_utils.virtual.models import decode, isa_of

AMD = [name for name, row in MODELS.items() if row.vendor == "amd"]
NVIDIA = [name for name, row in MODELS.items() if row.vendor == "nvidia"]
MFMA = {
    "f16": "v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], 0",
    "f32": "v_mfma_f32_16x16x4_f32 a[0:3], v0, v2, 0",
    "xf32": "v_mfma_f32_16x16x8_xf32 a[0:3], v[0:1], v[2:3], 0",
    "fp8": "v_mfma_f32_16x16x32_fp8_bf8 a[0:3], v[0:1], v[2:3], 0",
}
WAITS = {
    "vmcnt": "s_waitcnt vmcnt(0) lgkmcnt(0)",
    "vscnt": "s_waitcnt_vscnt null, 0x0",
    "loadcnt": "s_wait_loadcnt_dscnt 0x0",
    "asynccnt": "s_wait_asynccnt 0x0",
}


def takes(target: str, line: str) -> bool:
    """Whether a kernel of one AMDGCN instruction decodes."""
    try:
        decode_amdgcn(f"kernel:\n\t{line}\n\ts_endpgm\n", target, "kernel")
    except UnsupportedInstruction:
        return False
    return True


def test_the_executed_targets_are_the_rows_that_say_so():
    assert list(MODELS) == [name for name, row in TARGETS.items() if row.executed]
    assert all(MODELS[name] is TARGETS[name] for name in MODELS)


@pytest.mark.parametrize("name", ["gfx1250"])
def test_a_target_that_no_virtual_gpu_executes_is_refused_by_name(name):
    with pytest.raises(UnknownName, match=f"no virtual GPU '{name}'"), virtual_gpu(name):
        pass
    with pytest.raises(UnknownName, match=f"no virtual GPU '{name}'"):
        isa_of(name)


def test_a_decoder_knows_the_targets_of_the_table_and_no_name_that_only_starts_alike():
    with pytest.raises(UnknownName, match="no target 'gfx1250'"):
        takes("gfx1250", "s_nop 0")


@pytest.mark.parametrize("kind", list(MFMA))
@pytest.mark.parametrize("target", [name for name in AMD if "mfma" in MODELS[name].matrix])
def test_a_matrix_instruction_decodes_where_the_row_names_its_operands(target, kind):
    assert takes(target, MFMA[kind]) == (kind in MODELS[target].inputs)


@pytest.mark.parametrize("counter", list(WAITS))
@pytest.mark.parametrize("target", AMD)
def test_a_wait_decodes_where_the_family_has_its_counter(target, counter):
    assert takes(target, WAITS[counter]) == (counter in MODELS[target].waits)


@pytest.mark.parametrize("target", NVIDIA)
def test_wgmma_decodes_where_the_row_names_it(target):
    text = (
        f".version 8.0\n.target {target}\n.address_size 64\n.visible .entry kernel()\n{{\n"
        "wgmma.fence.sync.aligned;\nret;\n}\n"
    )
    if "wgmma" in MODELS[target].matrix:
        assert decode(text, target, "kernel").ops
    else:
        with pytest.raises(UnsupportedInstruction, match=f"{target} has no wgmma"):
            decode(text, target, "kernel")
