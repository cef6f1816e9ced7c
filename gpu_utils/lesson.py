"""What lessons and labs import beside `gpu_utils` itself: figures, models, rules, and the course's own material.

Nothing else of the library is meant for learners. Each name is loaded when it is first used, so that a lab that needs a
table of targets does not wait for torch. docs/imports.md says in a few words what each name is; a test holds content/,
that page and the groups below together. A new figure, table or helper of a lesson gets its line here.
"""

from __future__ import annotations

from gpu_utils.lazy import lazily

GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "Predictions and results": {
        "gpu_utils.ui.bars": ("bars",),
        "gpu_utils.ui.code": ("code",),
        "gpu_utils.ui.curves": ("curves",),
        "gpu_utils.ui.executed": ("executed",),
        "gpu_utils.ui.sitting": ("sitting",),
        "gpu_utils.ui.slots": ("choice", "nearest", "number", "yes_no"),
        "gpu_utils.ui.table": ("sourced", "table"),
    },
    "Figures": {
        "gpu_utils.ui.amax_figure": ("amax_figure",),
        "gpu_utils.ui.bank_figure": ("bank_figure",),
        "gpu_utils.ui.block_figure": ("BlockFigure",),
        "gpu_utils.ui.diff_figure": ("DiffFigure",),
        "gpu_utils.ui.error_figure": ("error_figure",),
        "gpu_utils.ui.format_table": ("format_numbers", "format_table"),
        "gpu_utils.ui.grid_figure": ("grid_figure",),
        "gpu_utils.ui.lane_figure": ("lane_figure",),
        "gpu_utils.ui.latency_figure": ("latency_figure",),
        "gpu_utils.ui.launch_figure": ("LaunchFigure",),
        "gpu_utils.ui.machine_figure": ("chip_figure", "unit_figure"),
        "gpu_utils.ui.number_figure": ("number_line",),
        "gpu_utils.ui.scale_figure": ("scale_figure",),
        "gpu_utils.ui.stage_figure": ("stage_figure",),
        "gpu_utils.ui.wave_figure": ("WaveFigure",),
    },
    "Targets and compilers": {
        "gpu_utils.chips": ("TARGETS",),
        "gpu_utils.chips.caches": ("L2_OF_TARGET",),
        "gpu_utils.compiler": ("resources",),
        "gpu_utils.compiler.clang": ("compile_cpp",),
        "gpu_utils.compiler.hipify": ("hipify",),
        "gpu_utils.compiler.leftovers": ("leftovers",),
        "gpu_utils.compiler.reading": ("compiler_notes", "in_loops", "mnemonics", "places_along_k"),
        "gpu_utils.ui.parity_table": ("parity_table",),
        "gpu_utils.ui.sass": ("sass",),
    },
    "Running kernels": {
        "gpu_utils.backends": ("interpreter",),
        "gpu_utils.backends.launching": ("counted", "counts", "counts_by_line", "issued", "launch_cpp", "launch_on"),
        "gpu_utils.backends.own_generation": ("generated",),
        "gpu_utils.backends.rungs": ("SPILLS", "climbed", "launches_of", "needs", "raced"),
        "gpu_utils.backends.swapped_step": ("own_kernels_in_gpt2", "speed_in_gpt2"),
        "gpu_utils.backends.traffic": ("traffic_of_torch",),
        "gpu_utils.virtual.cache": ("l2_traffic",),
    },
    "Rules on paper": {
        "gpu_utils.analytic.inference": ("MODELS",),
        "gpu_utils.analytic.narrow_sums": ("worst_sum_errors",),
        "gpu_utils.analytic.operators": ("gpt2_operators",),
        "gpu_utils.analytic.roofline": ("Point", "roofline"),
        "gpu_utils.analytic.tile_order": ("order_traffic",),
        "gpu_utils.analytic.visibility": ("visible",),
    },
    "The language model": {
        "gpu_utils.model.corpus": ("load_corpus",),
        "gpu_utils.model.costs": (
            "kv_cache_bytes",
            "saved_bytes",
        ),
        "gpu_utils.model.device": ("default_device", "device_peak", "training_dtype"),
        "gpu_utils.model.swapping": ("swapped",),
        "gpu_utils.model.fp8_errors": ("bits_per_value", "relative_errors"),
        "gpu_utils.model.fp8_recipes": ("RECIPES",),
        "gpu_utils.model.fp8_training": ("fp8_run", "fp8_trial", "loss_gap"),
        "gpu_utils.model.fp8_operands": ("layer_operands", "mx_codes", "trained_gpt2"),
        "gpu_utils.model.gpt2": (
            "GPT2",
            "MLP",
            "Block",
            "SelfAttention",
            "GPT2Config",
            "causal_attention",
            "from_pretrained",
            "generate",
            "to_transformers",
        ),
        "gpu_utils.model.products": ("fastest", "products_alone"),
        "gpu_utils.model.profiling": ("product_share",),
        "gpu_utils.model.parity": ("agreement", "parity"),
        "gpu_utils.model.records": ("RunRecord", "latest_record", "load_record", "save_record"),
        "gpu_utils.model.training": (
            "PRESETS",
            "Batches",
            "TrainConfig",
            "default_preset",
            "learning_rate",
            "accumulated_step",
            "batch_loss",
            "parameter_groups",
            "train",
            "training_steps",
            "trial",
        ),
    },
    "Ranks": {
        "gpu_utils.distributed": ("run_ranks",),
        "gpu_utils.errors": ("RankFailed",),
        "gpu_utils.exercises.u11_expert_parallelism.lesson_rings": ("ring_watched",),
        "gpu_utils.ui.held_figure": ("held", "held_figure", "marked"),
    },
    "Material of the course": {
        "gpu_utils.ui.written": ("when_written",),
        "gpu_utils.course.paths": ("unit_folder",),
        "gpu_utils.exercises.u03_porting_to_rocm.hipify_project": ("cuda_project", "hipified_project"),
        "gpu_utils.exercises.u03_porting_to_rocm.lesson_answers": (
            "after_sm_80",
            "cause_of",
            "doctor_findings",
            "fp8_fate",
            "which_of",
        ),
        "gpu_utils.exercises.u03_porting_to_rocm.lesson_hipify": (
            "between",
            "by_kind",
            "cuda_words",
            "hipified_part",
            "included",
            "narrow_votes",
            "span",
        ),
        "gpu_utils.exercises.u03_porting_to_rocm.lesson_runs": (
            "endings",
            "first_of_wave",
            "kept_error",
            "launched",
            "python_process",
        ),
        "gpu_utils.exercises.u03_porting_to_rocm.triage_collect": ("public_logs",),
        "gpu_utils.exercises.u08_fp8.own_training": ("own_fp8_training",),
    },
    "Errors": {
        "gpu_utils.errors": ("CompileFailed", "OutOfBounds", "W2WError"),
    },
}
"""Group -> module -> the names that it gives to lessons and labs."""

_HOME = {name: module for modules in GROUPS.values() for module, names in modules.items() for name in names}

__all__ = sorted(_HOME)
__getattr__, __dir__ = lazily(__name__, _HOME)
