# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's logits through its C API, which the extension of the package xllamacpp exports.

Parameter structs are taken from the library's own defaults and changed at known places; before
that, the defaults at those places are compared with what llama.cpp documents, so that a version
with another layout stops here instead of computing something else.
"""
import ctypes as c
import functools
from pathlib import Path

import numpy as np
import xllamacpp

MODEL_PARAMS, CONTEXT_PARAMS = 80, 168  # bytes
# Places in llama_context_params and their defaults.
N_CTX, N_BATCH, N_UBATCH, N_SEQ_MAX = (0, 512), (4, 2048), (8, 512), (12, 1)
THREADS, THREADS_BATCH, FLASH = (28, 4), (32, 4), (52, -1)
TYPE_K, TYPE_V = (104, 1), (108, 1)  # GGML_TYPE_F16; F32 is 0


class ModelParams(c.Structure):
    _fields_ = [("bytes", c.c_uint8 * MODEL_PARAMS)]


class ContextParams(c.Structure):
    _fields_ = [("bytes", c.c_uint8 * CONTEXT_PARAMS)]

    def get(self, place):
        return int.from_bytes(bytes(self.bytes[place[0]:place[0] + 4]), "little", signed=True)

    def set(self, place, value):
        self.bytes[place[0]:place[0] + 4] = list(value.to_bytes(4, "little", signed=True))


class Batch(c.Structure):
    _fields_ = [("n_tokens", c.c_int32), ("token", c.POINTER(c.c_int32)), ("embd", c.c_void_p),
                ("pos", c.POINTER(c.c_int32)), ("n_seq_id", c.POINTER(c.c_int32)),
                ("seq_id", c.POINTER(c.POINTER(c.c_int32))), ("logits", c.POINTER(c.c_int8))]


LOG = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)


@LOG
def quiet(level, text, data):
    """Says errors (4) only."""
    if level == 4:
        print(text.decode(), end="")


@functools.cache
def library():
    library = c.CDLL(str(Path(xllamacpp.__path__[0]) / "xllamacpp.abi3.so"))
    pointer = c.c_void_p
    for name, result, *arguments in [
            ("llama_log_set", None, LOG, pointer),
            ("llama_backend_init", None),
            ("llama_model_default_params", ModelParams),
            ("llama_context_default_params", ContextParams),
            ("llama_model_load_from_file", pointer, c.c_char_p, ModelParams),
            ("llama_model_free", None, pointer),
            ("llama_model_get_vocab", pointer, pointer),
            ("llama_vocab_n_tokens", c.c_int32, pointer),
            ("llama_init_from_model", pointer, pointer, ContextParams),
            ("llama_free", None, pointer),
            ("llama_batch_init", Batch, c.c_int32, c.c_int32, c.c_int32),
            ("llama_batch_free", None, Batch),
            ("llama_decode", c.c_int32, pointer, Batch),
            ("llama_get_logits_ith", c.POINTER(c.c_float), pointer, c.c_int32)]:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.llama_log_set(quiet, None)
    library.llama_backend_init()
    return library


def context_params(length, flash):
    params = library().llama_context_default_params()
    for place in (N_CTX, N_BATCH, N_UBATCH, N_SEQ_MAX, THREADS, THREADS_BATCH, FLASH, TYPE_K,
                  TYPE_V):
        if params.get(place) != place[1]:
            raise RuntimeError("llama_context_params of this xllamacpp has another layout")
    params.set(N_CTX, 256)
    params.set(N_UBATCH, length)
    for place, value in [(THREADS, 1), (THREADS_BATCH, 1), (FLASH, int(flash)), (TYPE_K, 0),
                         (TYPE_V, 0)]:
        params.set(place, value)
    return params


def logits(model_path, steps, flash=False):
    """[tokens, vocabulary] of one sequence that is fed in `steps`, lists of ids."""
    lib = library()
    model = lib.llama_model_load_from_file(str(model_path).encode(), lib.llama_model_default_params())
    if not model:
        raise RuntimeError(f"llama.cpp does not load {model_path}")
    context = lib.llama_init_from_model(model, context_params(max(map(len, steps)), flash))
    if not context:
        raise RuntimeError(f"llama.cpp makes no context for {model_path}")
    vocabulary = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    rows, position = [], 0
    for ids in steps:
        batch = lib.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i] = token, position + i
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, 0, 1
        if lib.llama_decode(context, batch) != 0:
            raise RuntimeError(f"llama.cpp does not decode {model_path}")
        rows += [np.ctypeslib.as_array(lib.llama_get_logits_ith(context, i), (vocabulary,)).copy()
                 for i in range(len(ids))]
        lib.llama_batch_free(batch)
        position += len(ids)
    lib.llama_free(context)
    lib.llama_model_free(model)
    return np.stack(rows)
