# SPDX-License-Identifier: Apache-2.0
"""What gpu_check runs: the steps, the operations and the tests, and a line of its results without numbers."""

from step_cases import image_case, text_case

PARTS = ("first", "kernels", "vision", "language")
# "dist": NCCL with one rank.
TEST_PROGRAMS = {"core": 40, "ops": 120, "optim": 30, "dist": 10, "models": 60, "train": 60}
# What runs under compute-sanitizer: its tool, a test program, tests.
SANITIZED = (
    ("memcheck", "core", "CudaMma.*"),
    ("memcheck", "ops", "Op.Softmax/cuda_f32:Op.LayerNorm/cuda_f16:Op.BatchNormTraining/cuda_f32:"
                        "Op.Attention/cuda_bf16:Op.WindowAttention/cuda_bf16:Op.Linear/cuda_bf16"),
    ("racecheck", "core", "CudaMma.*"),
    ("racecheck", "ops", "Op.WindowAttention/cuda_bf16"),
)
# Those of the tests that come before what takes long.
SHORT_CHECKS = ("tests/core", "memcheck/core")
# Families of `hearth bench ops`, the weakest of the peers' first.
FAMILIES = {
    "kernels": ("batch_norm", "conv2d", "relu", "window_attention", "merge_layer_norm"),
    "language": ("layer_norm", "add_layer_norm", "attention", "cross_entropy", "linear_cross_entropy", "update",
                 "linear", "softmax", "gelu"),
}
# Those of the first call, without PyTorch's.
FIRST_FAMILIES = ("batch_norm", "layer_norm", "add_layer_norm", "cross_entropy", "linear_cross_entropy", "update",
                  "window_attention")
# Factors on the batches of `hearth bench ops` where it is not the program's own: of 8 images and of 256.
SCALES = {"window_attention": (1, 32)}
# Implementations that are measured beside the one chosen, in bf16.
PICKS = {"attention": ("cudnn", "mma"), "conv2d": ("cudnn", "mma"), "linear": ("cublaslt", "mma")}
# Whole steps: the case, one for an emulated GPU, what PyTorch's mode without compiling is called, who made PyTorch's
# model. The GPT is GPT-2's smallest, with as many words as its vocabulary has pieces and some to spare.
STEPS = {
    "resnet50": {"part": "vision", "case": image_case("resnet50", 224, 256),
                 "small": image_case("resnet10", 32, 2, width=16), "eager": "eager_channels_last", "makers": ["torch"]},
    "gpt": {"part": "language", "case": text_case("gpt", 1024, 64, 12, 768, 50304),
            "small": text_case("gpt", 16, 2, 1, 64, 128), "eager": "eager", "makers": ["torch"]},
    "swin_t": {"part": "vision", "case": image_case("swin", 224, 256),
               "small": image_case("swin", 32, 2, depths=[1, 1], heads=[1, 2], width=32), "eager": "eager", "makers": ["torch"]},
}
# The steps of the first call, the most wanted first.
FIRST_STEPS = (("resnet50", "f16"), ("resnet50", "bf16"), ("gpt", "bf16"), ("swin_t", "bf16"))
# Those that are measured with `train.repeatable` false too, which lets libraries add in any order.
ANY_ORDER = (("gpt", "bf16"),)
# What is tried, one after the other, where a step fails.
CURES = ("attention:mma", "conv2d:mma", "linear:mma", "attention:mma,conv2d:mma,linear:mma")
# Tests of the tensor cores' kernels that run before anything is timed.
CONFORMANCE = (
    ("core", "CudaMma.*"),
    ("ops", "Op.Conv2d*/cuda_f16:Op.Conv2d*/cuda_bf16:Op.Linear/cuda_f16:Op.Linear/cuda_bf16:Op.Attention/cuda_bf16:"
            "Op.WindowAttention/cuda_bf16:Op.BatchNormTraining/cuda_f16:Op.LayerNorm/cuda_bf16:"
            "Op.CrossEntropy*/cuda_bf16"),
)
# Processes that share a program's tests on a GPU.
PROCESSES = 8
# On an emulated GPU one of so many slices of a program's tests runs.
SHARDS = {"core": 20, "ops": 400, "optim": 20, "dist": 4, "models": 60, "train": 60}
# Tests that use a device: their names say so.
DEVICE_TESTS = "*cuda*:*Cuda*:*On*Device*"
# The keys of a line that `hearth bench --json` prints.
NOT_TIMED = {
    "schema": 1,
    "case": {"name": "", "shape": "", "dtype": "", "batch": 0, "device": "cuda:0"},
    "hearth": dict.fromkeys(("ms", "ms_min", "ms_p90", "latency_ms", "per_s", "unit", "gbs", "tflops", "peak_mem_mb",
                             "implementation")),
    "peers": [],
    "ratio_best_peer": None,
    "ceilings": dict.fromkeys(("copy_gbs", "in_place_gbs", "matmul_tflops")),
    "percent_of_limit": None,
    "max_error": None,
    "ok": None,
    "note": "",
}
