#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama.cpp as a peer of compare.py where only the Python package xllamacpp is at hand: one prompt
of made-up tokens through its in-process server, whose own timings are printed.

  --peer 'llama.cpp=python3 bench/peer_llama_server.py {model} {prompt} {generate} {threads}'
"""
import json
import sys

import xllamacpp


def some_tokens(count):
    ids, state = [], 1
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        ids.append(260 + (state >> 33) % 31000)
    return ids


def main():
    model, prompt, generate, threads = sys.argv[1], *map(int, sys.argv[2:5])
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = prompt + generate + 64
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = 512
    params.verbosity = -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    server = xllamacpp.Server(params)
    answer = server.handle_completions({
        "prompt": some_tokens(prompt), "n_predict": generate, "ignore_eos": True,
        "cache_prompt": False, "temperature": 0.0})
    if "timings" not in answer:
        sys.exit(f"no answer: {answer}")
    timings = answer["timings"]
    print(json.dumps({"prefill": [timings["prompt_per_second"]],
                      "decode": [timings["predicted_per_second"]]}))


if __name__ == "__main__":
    main()
