# SPDX-License-Identifier: Apache-2.0
"""Makes the models of this folder: tiny checkpoints as Hugging Face transformers saves them.

    python make_models.py [model ...]        # needs torch, transformers, safetensors

Each is a seeded model of transformers, written by save_pretrained to data/<model>/, and what it
answers to data/<model>/answer.f32: logits [T, V] (hidden states [T, D] of an encoder) of the tokens in
tokens.json beside it, computed in f32 with eager attention. Matrices of every other layer are rounded to
BF16 first and stored as such, so that a folder mixes types. A seed is taken only if every choice
(experts, chosen tokens) is clear of rounding, as in ../fixtures/make_fixtures.py, from which the
seeding comes.
"""
import argparse
import json
import re
import shutil
import sys
from pathlib import Path

import safetensors.torch
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parent.parent / "fixtures"))
import kimi_k3  # noqa: E402
import make_fixtures  # noqa: E402

DATA = Path(__file__).parent / "data"
TOKENS = 24
VOCABULARY = 64
BASE = dict(hidden_size=32, vocab_size=VOCABULARY, num_hidden_layers=2, bos_token_id=0,
            eos_token_id=1, pad_token_id=0, rms_norm_eps=1e-5)
GQA = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=8, intermediate_size=48,
           max_position_embeddings=256)
WINDOWS = dict(sliding_window=5, layer_types=["sliding_attention", "full_attention"])
MLA = dict(num_attention_heads=4, num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16,
           qk_rope_head_dim=8, qk_nope_head_dim=12, v_head_dim=10, max_position_embeddings=1024)
MOE = dict(intermediate_size=48, moe_intermediate_size=20, n_routed_experts=8, n_shared_experts=1,
           num_experts_per_tok=3, n_group=4, topk_group=2, routed_scaling_factor=2.5,
           first_k_dense_replace=1)


def model(model_class, config_class, config, shard="1GB", drop=()):
    config = {k: v for k, v in (BASE | config).items() if k not in drop}
    return dict(model_class=model_class, config_class=config_class, config=config, shard=shard)


MODELS = {
    "llama": model(
        "LlamaForCausalLM", "LlamaConfig",
        GQA | dict(rope_parameters=dict(rope_type="llama3", rope_theta=1e4, factor=8.0,
                                        low_freq_factor=1.0, high_freq_factor=4.0,
                                        original_max_position_embeddings=32),
                   attention_bias=True), shard="40KB"),
    "qwen3": model("Qwen3ForCausalLM", "Qwen3Config", GQA | dict(head_dim=16)),
    "gemma3": model(
        "Gemma3ForCausalLM", "Gemma3TextConfig",
        GQA | WINDOWS | dict(head_dim=16, query_pre_attn_scalar=24,
                             rope_parameters=dict(
                                 full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0),
                                 sliding_attention=dict(rope_type="default", rope_theta=1e4)))),
    "phi3": model("Phi3ForCausalLM", "Phi3Config",
                  {k: v for k, v in GQA.items() if k != "head_dim"} |
                  dict(sliding_window=7,
                       rope_parameters=dict(rope_type="default", rope_theta=1e4,
                                            partial_rotary_factor=0.75))),
    "gpt2": model("GPT2LMHeadModel", "GPT2Config",
                  dict(n_embd=32, n_head=4, n_layer=2, n_positions=64),
                  drop=("hidden_size", "num_hidden_layers", "rms_norm_eps")),
    "cohere2": model("Cohere2ForCausalLM", "Cohere2Config", GQA | WINDOWS | dict(logit_scale=0.5), drop=("rms_norm_eps",)),
    "qwen3_next": model(
        "Qwen3NextForCausalLM", "Qwen3NextConfig",
        GQA | dict(head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
                   linear_key_head_dim=8, linear_value_head_dim=6, linear_conv_kernel_dim=4,
                   num_experts=8, num_experts_per_tok=3, moe_intermediate_size=12,
                   shared_expert_intermediate_size=20, partial_rotary_factor=0.25,
                   layer_types=["linear_attention", "full_attention"])),
    "gpt_oss": model(
        "GptOssForCausalLM", "GptOssConfig",
        GQA | WINDOWS | dict(intermediate_size=20, num_local_experts=6, num_experts_per_tok=2,
                             rope_parameters=dict(rope_type="yarn", rope_theta=1.5e5, factor=32.0,
                                                  beta_fast=32.0, beta_slow=1.0, truncate=False,
                                                  original_max_position_embeddings=64),
                             max_position_embeddings=2048)),
    "deepseek_v3": model(
        "DeepseekV3ForCausalLM", "DeepseekV3Config",
        MLA | MOE | dict(rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=40.0,
                                              original_max_position_embeddings=64, beta_fast=32.0,
                                              beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0))),
    "kimi_linear": model(
        "KimiLinearForCausalLM", "KimiLinearConfig",
        {k: v for k, v in MLA.items() if k != "q_lora_rank"} |
        dict(intermediate_size=48, moe_intermediate_size=20, num_local_experts=8,
             num_experts_per_tok=2, linear_head_dim=8, linear_num_heads=3,
             linear_conv_kernel_dim=4, layer_types=["linear_attention", "full_attention"],
             mlp_layer_types=["dense", "sparse"])),
    "glm5_next": model(
        "Glm5NextForConditionalGeneration", "Glm5NextConfig",
        dict(text_config=BASE | MLA | {k: v for k, v in MOE.items() if k != "first_k_dense_replace"}
             | dict(num_hidden_layers=3, qk_rope_head_dim=0, n_group=1, topk_group=1, index_topk=8,
                    index_head_dim=16, index_n_heads=8, index_kpool=4, linear_head_dim=8,
                    linear_num_heads=3, linear_conv_kernel_dim=4, linear_lower_bound=-5.0,
                    hc_mult=3, hc_sinkhorn_iters=4, hc_eps=1e-3, swiglu_limit=1.5,
                    layer_types=["linear_attention"] + ["indexed_attention"] * 2,
                    indexer_types=["full", "full", "shared"],
                    mlp_layer_types=["dense"] + ["sparse"] * 2),
             vision_config=dict(depth=1, hidden_size=8, num_heads=1, intermediate_size=8,
                                patch_size=2, image_size=4, out_hidden_size=32,
                                projection_intermediate_size=8)),
        drop=BASE),
    "deepseek_v4": model(
        "DeepseekV4ForCausalLM", "DeepseekV4Config",
        dict(num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=1, head_dim=16,
             q_lora_rank=24, moe_intermediate_size=20, n_routed_experts=8, num_experts_per_tok=2,
             sliding_window=6, o_groups=2, o_lora_rank=12, index_n_heads=8, index_head_dim=16,
             index_topk=3, hc_mult=3, hc_sinkhorn_iters=4, hc_eps=1e-3, swiglu_limit=1.5,
             partial_rotary_factor=0.5, compress_rates={"compressed_sparse_attention": 4,
                                                        "heavily_compressed_attention": 8},
             layer_types=["sliding_attention", "compressed_sparse_attention",
                          "heavily_compressed_attention"],
             mlp_layer_types=["hash_moe", "moe", "moe"], max_position_embeddings=1024,
             rope_parameters=dict(rope_type="yarn", factor=16.0, rope_theta=1e4,
                                  original_max_position_embeddings=64, beta_fast=32.0,
                                  beta_slow=1.0))),
    "bert": model("BertModel", "BertConfig",
                  dict(num_attention_heads=4, intermediate_size=48, max_position_embeddings=64,
                       layer_norm_eps=1e-12), drop=("rms_norm_eps",)),
}

SMALL = dict(hidden_size=16, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
             max_position_embeddings=64, vocab_size=32)
SMALL_MLA = {k: v for k, v in SMALL.items() if k != "num_key_value_heads"} | dict(
    num_key_value_heads=4, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=5,
    n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, n_shared_experts=1)
INDEXED = SMALL_MLA | dict(q_lora_rank=12, index_topk=6, index_head_dim=8, index_n_heads=4,
                           n_group=1, topk_group=1, num_hidden_layers=3,
                           mlp_layer_types=["dense", "sparse", "sparse"])
LAYER_NORM = dict(drop=("rms_norm_eps",))
MODELS |= {
    "mistral": model("MistralForCausalLM", "MistralConfig", SMALL | dict(sliding_window=5)),
    "mixtral": model("MixtralForCausalLM", "MixtralConfig", SMALL | dict(num_local_experts=4)),
    "smollm3": model("SmolLM3ForCausalLM", "SmolLM3Config", SMALL | dict(num_hidden_layers=4)),
    "granite": model("GraniteForCausalLM", "GraniteConfig",
                     SMALL | dict(attention_multiplier=0.4, embedding_multiplier=3.0,
                                  logits_scaling=2.0, residual_multiplier=0.7)),
    "granitemoe": model("GraniteMoeForCausalLM", "GraniteMoeConfig",
                        SMALL | dict(attention_multiplier=0.4, embedding_multiplier=3.0,
                                     logits_scaling=2.0, residual_multiplier=0.7,
                                     num_local_experts=4)),
    "ministral3": model(
        "Ministral3ForCausalLM", "Ministral3Config",
        SMALL | dict(head_dim=8, rope_parameters=dict(
            rope_type="yarn", rope_theta=1e6, factor=16.0, beta_fast=32.0, beta_slow=1.0,
            mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1,
            original_max_position_embeddings=8))),
    "qwen2": model("Qwen2ForCausalLM", "Qwen2Config", SMALL),
    "qwen2_moe": model("Qwen2MoeForCausalLM", "Qwen2MoeConfig",
                       SMALL | dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8,
                                    shared_expert_intermediate_size=12)),
    "qwen3_moe": model("Qwen3MoeForCausalLM", "Qwen3MoeConfig",
                       SMALL | dict(head_dim=8, num_experts=4, num_experts_per_tok=2,
                                    moe_intermediate_size=8, norm_topk_prob=True)),
    "gemma": model("GemmaForCausalLM", "GemmaConfig", SMALL | dict(head_dim=8)),
    "gemma2": model("Gemma2ForCausalLM", "Gemma2Config",
                    SMALL | WINDOWS | dict(head_dim=8, query_pre_attn_scalar=12)),
    "cohere": model("CohereForCausalLM", "CohereConfig", SMALL, **LAYER_NORM),
    "phi": model("PhiForCausalLM", "PhiConfig", SMALL, **LAYER_NORM),
    "glm4": model("Glm4ForCausalLM", "Glm4Config", SMALL | dict(head_dim=8)),
    "glm4_moe": model("Glm4MoeForCausalLM", "Glm4MoeConfig",
                      SMALL | dict(head_dim=8, n_routed_experts=4, num_experts_per_tok=2,
                                   moe_intermediate_size=8, first_k_dense_replace=1,
                                   use_qk_norm=True, routed_scaling_factor=1.5)),
    "minimax_m2": model("MiniMaxM2ForCausalLM", "MiniMaxM2Config",
                        SMALL | dict(head_dim=8, num_local_experts=4, num_experts_per_tok=2)),
    "olmo": model("OlmoForCausalLM", "OlmoConfig", SMALL | dict(clip_qkv=1.5), **LAYER_NORM),
    "olmo2": model("Olmo2ForCausalLM", "Olmo2Config", SMALL),
    "olmoe": model("OlmoeForCausalLM", "OlmoeConfig",
                   SMALL | dict(num_experts=4, num_experts_per_tok=2)),
    "stablelm": model("StableLmForCausalLM", "StableLmConfig",
                      SMALL | dict(use_qkv_bias=True, partial_rotary_factor=0.5), **LAYER_NORM),
    "starcoder2": model("Starcoder2ForCausalLM", "Starcoder2Config",
                        SMALL | dict(sliding_window=5), **LAYER_NORM),
    "gpt_bigcode": model("GPTBigCodeForCausalLM", "GPTBigCodeConfig",
                         dict(n_embd=16, n_head=4, n_layer=2, n_positions=64, vocab_size=32),
                         drop=("hidden_size", "num_hidden_layers", "rms_norm_eps")),
    "bloom": model("BloomForCausalLM", "BloomConfig",
                   dict(hidden_size=16, n_layer=2, n_head=4, vocab_size=32),
                   drop=("num_hidden_layers", "rms_norm_eps")),
    "falcon": model("FalconForCausalLM", "FalconConfig",
                    dict(hidden_size=16, num_attention_heads=4, vocab_size=32), **LAYER_NORM),
    "falcon_groups": model("FalconForCausalLM", "FalconConfig",
                           dict(hidden_size=16, num_attention_heads=4, num_kv_heads=2,
                                new_decoder_architecture=True, vocab_size=32), **LAYER_NORM),
    "gpt_neox": model("GPTNeoXForCausalLM", "GPTNeoXConfig",
                      {k: v for k, v in SMALL.items() if k != "num_key_value_heads"} |
                      dict(rope_parameters=dict(rope_type="default", rope_theta=1e4,
                                                partial_rotary_factor=0.5)), **LAYER_NORM),
    "mpt": model("MptForCausalLM", "MptConfig",
                 dict(d_model=16, n_heads=4, n_layers=2, max_seq_len=64, vocab_size=32,
                      attn_config=dict(attn_type="multihead_attention", clip_qkv=1.5, alibi=True)),
                 drop=("hidden_size", "num_hidden_layers", "rms_norm_eps")),
    "deepseek_v2": model("DeepseekV2ForCausalLM", "DeepseekV2Config",
                         SMALL_MLA | dict(q_lora_rank=None, first_k_dense_replace=1,
                                          topk_method="group_limited_greedy", n_group=2,
                                          topk_group=1, routed_scaling_factor=1.5)),
    "mistral4": model(
        "Mistral4ForCausalLM", "Mistral4Config",
        SMALL_MLA | dict(q_lora_rank=12, first_k_dense_replace=0, n_group=1, topk_group=1,
                         rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=16.0,
                                              beta_fast=32.0, beta_slow=1.0, mscale=1.0,
                                              mscale_all_dim=1.0, llama_4_scaling_beta=0.1,
                                              original_max_position_embeddings=8))),
    "deepseek_v32": model("DeepseekV32ForCausalLM", "DeepseekV32Config", INDEXED),
    "glm_moe_dsa": model("GlmMoeDsaForCausalLM", "GlmMoeDsaConfig",
                         INDEXED | dict(indexer_types=["full", "full", "shared"])),
    "gemma4": model(
        "Gemma4ForCausalLM", "Gemma4TextConfig",
        SMALL | dict(num_hidden_layers=4, head_dim=8, global_head_dim=16,
                     num_global_key_value_heads=1, attention_k_eq_v=True, sliding_window=5,
                     num_kv_shared_layers=2, use_double_wide_mlp=True,
                     layer_types=["sliding_attention", "full_attention"] * 2,
                     hidden_size_per_layer_input=6, vocab_size_per_layer_input=32,
                     enable_moe_block=True, num_experts=4, top_k_experts=2,
                     moe_intermediate_size=12)),
    "qwen3_5": model("Qwen3_5ForCausalLM", "Qwen3_5TextConfig",
                     SMALL | dict(head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
                                  linear_key_head_dim=4, linear_value_head_dim=6,
                                  layer_types=["linear_attention", "full_attention"])),
}

LINEAR = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=4,
              linear_value_head_dim=6, layer_types=["linear_attention", "full_attention"])
MODELS |= {
    "qwen3_5_moe": model("Qwen3_5MoeForCausalLM", "Qwen3_5MoeTextConfig",
                         SMALL | LINEAR | dict(head_dim=16, num_experts=4, num_experts_per_tok=2,
                                               moe_intermediate_size=8,
                                               shared_expert_intermediate_size=12)),
    "olmo3": model("Olmo3ForCausalLM", "Olmo3Config",
                   SMALL | dict(num_hidden_layers=4, sliding_window=5, rope_parameters=dict(
                       sliding_attention=dict(rope_type="default", rope_theta=1e4),
                       full_attention=dict(rope_type="yarn", rope_theta=1e4, factor=8.0,
                                           beta_fast=32.0, beta_slow=1.0,
                                           original_max_position_embeddings=8)))),
    "minimax_m3": model(
        "MiniMaxM3VLForCausalLM", "MiniMaxM3VLTextConfig",
        SMALL | dict(head_dim=8, rotary_dim=4, num_hidden_layers=3, num_local_experts=4,
                     num_experts_per_tok=2, intermediate_size=12, dense_intermediate_size=20,
                     shared_intermediate_size=12, index_n_heads=2, index_head_dim=8,
                     index_block_size=4, index_topk_blocks=2, index_local_blocks=1,
                     rope_parameters=dict(rope_type="default", rope_theta=1e4,
                                          partial_rotary_factor=0.5),
                     mlp_layer_types=["dense", "sparse", "sparse"],
                     layer_types=["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"])),
    "bailing_hybrid": model(
        "BailingHybridForCausalLM", "BailingHybridConfig",
        dict(hidden_size=16, num_attention_heads=2, num_key_value_heads=2, vocab_size=32,
             intermediate_size=24, moe_intermediate_size=8, num_hidden_layers=3, kv_lora_rank=8,
             qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=5, head_dim=8, n_group=2,
             topk_group=1, num_local_experts=8, num_experts_per_tok=2, n_shared_experts=1,
             first_k_dense_replace=1, layer_group_size=3, max_position_embeddings=64)),
    # Ling 2: transformers runs its layer as GLM 4.5's and knows its names as Sarvam's.
    "bailing_moe_v2": model(
        "Glm4MoeForCausalLM", "SarvamMoEConfig",
        SMALL | dict(head_dim=8, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
                     moe_intermediate_size=8, first_k_dense_replace=1, n_shared_experts=1,
                     routed_scaling_factor=2.5, rope_parameters=dict(
                         rope_type="default", rope_theta=6e5, partial_rotary_factor=0.5))),
    "stablelm_12b": model("StableLmForCausalLM", "StableLmConfig",
                          SMALL | dict(qk_layernorm=True, use_parallel_residual=True,
                                       partial_rotary_factor=0.5), **LAYER_NORM),
    "llama_dynamic": model("LlamaForCausalLM", "LlamaConfig",
                           SMALL | dict(rope_parameters=dict(rope_type="dynamic", rope_theta=1e4,
                                                             factor=4.0))),
}

# Half of the layers are stored as BF16.
ROUNDED = re.compile(r"\b(layers|h|layer|blocks)\.(0|2)\.|embed_tokens|wte|word_embeddings")


def is_rounded(name, value):
    return value.ndim >= 2 and value.is_floating_point() and ROUNDED.search(name)


def build(name, seed):
    spec = MODELS[name]
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    config = getattr(transformers, spec["config_class"])(**spec["config"])
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    built = getattr(transformers, spec["model_class"])(config).to(torch.float32).eval()
    make_fixtures.seed_weights(
        built, make_fixtures.SMALL + make_fixtures.SMALL_TOO.get(name, ""), generator)
    built.tie_weights()
    for parameter, value in built.named_parameters():
        if is_rounded(parameter, value):
            value.data = value.data.to(torch.bfloat16).to(torch.float32)
    ids = torch.randint(2, built.config.get_text_config().vocab_size, (1, TOKENS),
                        generator=torch.Generator().manual_seed(7))
    recorder = make_fixtures.Recorder(built, [])
    topk, method = torch.topk, torch.Tensor.topk
    torch.topk, torch.Tensor.topk = recorder.wrap_topk(topk), recorder.wrap_topk(method)
    try:
        with torch.no_grad():
            answer = built(input_ids=ids, use_cache=False)
    finally:
        torch.topk, torch.Tensor.topk = topk, method
    rows = answer.logits if hasattr(answer, "logits") else answer.last_hidden_state
    return built, ids[0].tolist(), rows[0], recorder.margin


def rewrite(path):
    """Stores what was rounded as BF16, with the header's names in order: the same run, the same bytes."""
    tensors = safetensors.torch.load(path.read_bytes())  # load_file would map what is overwritten
    tensors = {n: v.to(torch.bfloat16) if is_rounded(n, v) else v for n, v in tensors.items()}
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    raw = path.read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    header = json.dumps(json.loads(raw[8:begin]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + raw[begin:])


def make(name):
    for seed in range(1, 200):
        built, tokens, rows, margin = build(name, seed)
        if margin > make_fixtures.MARGIN:
            break
    else:
        raise SystemExit(f"{name}: no seed keeps all choices clear of rounding")
    folder = DATA / name
    shutil.rmtree(folder, ignore_errors=True)
    built.save_pretrained(folder, max_shard_size=MODELS[name]["shard"])
    for path in sorted(folder.glob("*.safetensors")):
        rewrite(path)
    if name == "bailing_moe_v2":
        publish_ling2(folder / "config.json")
    (folder / "answer.f32").write_bytes(rows.contiguous().numpy().astype("<f4").tobytes())
    (folder / "tokens.json").write_text(json.dumps(tokens) + "\n")
    size = sum(p.stat().st_size for p in folder.iterdir()) / 1024
    print(f"{name}: seed {seed}, {size:.0f} KiB, margin {margin:.2g}, largest answer "
          f"{rows.abs().max():.3g}")


def publish_ling2(path):
    """The same model in the words of the published config.json of Ling 2."""
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config.update(
        model_type="bailing_moe_v2", architectures=["BailingMoeV2ForCausalLM"], rope_scaling=None,
        rope_theta=rope["rope_theta"], partial_rotary_factor=rope["partial_rotary_factor"],
        num_experts=config.pop("n_routed_experts"), num_shared_experts=config.pop("n_shared_experts"),
        use_bias=False, use_qkv_bias=config.pop("attention_bias"), use_rmsnorm=True,
        score_function="sigmoid", router_dtype="fp32", moe_router_enable_expert_bias=True,
        embedding_dropout=0.0, output_dropout=0.0, num_nextn_predict_layers=0,
        moe_shared_expert_intermediate_size=config["moe_intermediate_size"])
    config.pop("num_mtp_layers", None)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def make_kimi_k3():
    """A Kimi K3 with the names and keys of its published checkpoint, seeded. transformers 5.24.0 has
    no such model; kimi_k3.py says where the answer comes from."""
    width, vocabulary, layers, heads, dim, linear = 32, 64, 4, 4, 8, 3
    latent, experts, hidden, shared = 16, 8, 20, 2
    nope, rope, value, q_rank, rank = 12, 8, 10, 24, 16
    full = [layers]  # counted from 1
    text = dict(
        model_type="kimi_linear", hidden_size=width, num_hidden_layers=layers, vocab_size=vocabulary,
        num_attention_heads=heads, num_key_value_heads=heads, intermediate_size=48,
        rms_norm_eps=1e-5, hidden_act="situ", activation_situ_beta=4.0,
        activation_situ_linear_beta=25.0, model_max_length=256, q_lora_rank=q_rank,
        kv_lora_rank=rank, qk_nope_head_dim=nope, qk_rope_head_dim=rope, v_head_dim=value,
        mla_use_nope=True, mla_use_output_gate=True, num_experts=experts, num_experts_per_token=2,
        num_shared_experts=shared, moe_intermediate_size=hidden, first_k_dense_replace=1,
        moe_renormalize=True, moe_router_activation_func="sigmoid", num_expert_group=1,
        topk_group=1, routed_scaling_factor=2.5, routed_expert_hidden_size=latent,
        latent_moe_use_norm=True, attn_res_block_size=2, tie_word_embeddings=False,
        linear_attn_config=dict(
            num_heads=linear, head_dim=dim, short_conv_kernel_size=4, gate_lower_bound=-5.0,
            use_full_rank_gate=True, full_attn_layers=full,
            kda_layers=[i for i in range(1, layers + 1) if i not in full]))
    generator = torch.Generator().manual_seed(3)
    tensors = {}

    def matrix(name, *shape, scale=1.0):
        tensors[name] = torch.randn(shape, generator=generator) * scale * shape[-1] ** -0.5

    def vector(name, n, around=1.0):
        tensors[name] = around + 0.3 * torch.randn(n, generator=generator)

    root = "language_model.model."
    tensors[root + "embed_tokens.weight"] = torch.randn((vocabulary, width), generator=generator)
    matrix("language_model.lm_head.weight", vocabulary, width)
    vector(root + "norm.weight", width)
    vector(root + "output_attn_res_norm.weight", width)
    matrix(root + "output_attn_res_proj.weight", 1, width)
    for layer in range(layers):
        at = f"{root}layers.{layer}."
        for norm in ["input_layernorm", "post_attention_layernorm", "self_attention_res_norm",
                     "mlp_res_norm"]:
            vector(at + norm + ".weight", width)
        for site in ["self_attention_res_proj", "mlp_res_proj"]:
            matrix(at + site + ".weight", 1, width)
        attention = at + "self_attn."
        if layer + 1 in full:
            matrix(attention + "q_a_proj.weight", q_rank, width)
            vector(attention + "q_a_layernorm.weight", q_rank)
            matrix(attention + "q_b_proj.weight", heads * (nope + rope), q_rank)
            matrix(attention + "kv_a_proj_with_mqa.weight", rank + rope, width)
            vector(attention + "kv_a_layernorm.weight", rank)
            matrix(attention + "kv_b_proj.weight", heads * (nope + value), rank)
            matrix(attention + "g_proj.weight", heads * value, width)
            matrix(attention + "o_proj.weight", width, heads * value)
        else:
            for part in "qkv":
                matrix(attention + part + "_proj.weight", linear * dim, width)
                matrix(attention + part + "_conv1d.weight", linear * dim, 1, 4)
            matrix(attention + "f_a_proj.weight", dim, width)
            matrix(attention + "f_b_proj.weight", linear * dim, dim)
            # The published file fills the place of the decays up to the head's width with zeros.
            tensors[attention + "A_log"] = torch.cat(
                [torch.log(torch.rand(linear, generator=generator) + 0.3),
                 torch.zeros(dim - linear)])
            vector(attention + "dt_bias", linear * dim, 0.0)
            matrix(attention + "b_proj.weight", linear, width)
            matrix(attention + "g_proj.weight", linear * dim, width)
            vector(attention + "o_norm.weight", dim)
            matrix(attention + "o_proj.weight", width, linear * dim)
        if layer < 1:
            for part in ["gate", "up"]:
                matrix(f"{at}mlp.{part}_proj.weight", 48, width)
            matrix(at + "mlp.down_proj.weight", width, 48)
            continue
        block = at + "block_sparse_moe."
        matrix(block + "gate.weight", experts, width)
        vector(block + "gate.e_score_correction_bias", experts, 0.0)
        matrix(block + "routed_expert_down_proj.weight", latent, width)
        vector(block + "routed_expert_norm.weight", latent)
        matrix(block + "routed_expert_up_proj.weight", width, latent)
        for part in ["gate", "up"]:
            matrix(f"{block}shared_experts.{part}_proj.weight", shared * hidden, width)
        matrix(block + "shared_experts.down_proj.weight", width, shared * hidden)
        for e in range(experts):
            matrix(f"{block}experts.{e}.w1.weight", hidden, latent)
            matrix(f"{block}experts.{e}.w3.weight", hidden, latent)
            matrix(f"{block}experts.{e}.w2.weight", latent, hidden)
    folder = DATA / "kimi_k3"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(
        json.dumps(dict(model_type="kimi_k3", text_config=text), indent=1, sort_keys=True) + "\n")
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    rewrite(folder / "model.safetensors")
    stored = safetensors.torch.load((folder / "model.safetensors").read_bytes())
    stored = {re.sub(r"^language_model\.(model\.)?", "", name): value.to(torch.float32)
              for name, value in stored.items()}
    ids = torch.randint(2, vocabulary, (TOKENS,), generator=torch.Generator().manual_seed(7))
    rows = kimi_k3.KimiK3(text, stored).logits(ids)
    (folder / "answer.f32").write_bytes(rows.contiguous().numpy().astype("<f4").tobytes())
    (folder / "tokens.json").write_text(json.dumps(ids.tolist()) + "\n")
    print(f"kimi_k3: largest answer {rows.abs().max():.3g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=[*MODELS, "kimi_k3"])
    torch.set_num_threads(1)
    DATA.mkdir(exist_ok=True)
    for name in parser.parse_args().models:
        make_kimi_k3() if name == "kimi_k3" else make(name)


if __name__ == "__main__":
    main()
