# SPDX-License-Identifier: Apache-2.0
"""The golden variants: for each the keys and tensors of a tiny model. Sizes are small, and windows,
selections and blocks smaller still, so that a few dozen tokens cross every boundary."""

VOCABULARY, WIDTH = 96, 48
# With few index heads all of them may cut a key off, and scores that are zero alike make a choice
# that any engine may make in its own way.
INDEX_HEADS = 8
GELU = ("llama.cpp evaluates GELU through a table of f16 inputs and results, which moves these "
        "logits by some 1e-3")


class Variant:
    def __init__(self, name, architecture, shows, layers, length=40, flash=False, tolerance=None,
                 reason=None, eps="attention.layer_norm_rms_epsilon", output=True):
        self.name, self.architecture, self.shows = name, architecture, shows
        self.vocabulary, self.length, self.flash = VOCABULARY, length, flash
        self.tolerance, self.reason = tolerance, reason
        self.keys = {"context_length": 256, "embedding_length": WIDTH, "block_count": layers,
                     "vocab_size": VOCABULARY, eps: 1e-6}
        self.tensors = {}
        # Also the head where there is none of its own.
        self.add("token_embd.weight", VOCABULARY, WIDTH, kind="embedding" if output else "matrix")
        self.add("output_norm.weight", WIDTH, kind="norm")
        if output:
            self.add("output.weight", VOCABULARY, WIDTH)

    def add(self, name, *shape, kind=None):
        if kind is None:
            kind = ("bias" if name.endswith(".bias") else
                    "norm" if "norm" in name and len(shape) == 1 else "matrix")
        self.tensors[name] = (shape, kind)

    def block(self, layer, **shapes):
        """blk.N.NAME.weight for each NAME=shape; a dot in a name is written as two underlines."""
        for name, shape in shapes.items():
            shape = shape if isinstance(shape, tuple) else (shape,)
            self.add(f"blk.{layer}.{name.replace('__', '.')}.weight", *shape)

    def heads(self, heads, kv_heads, dim):
        self.keys |= {"attention.head_count": heads, "attention.head_count_kv": kv_heads,
                      "attention.key_length": dim, "attention.value_length": dim}

    def attention(self, layer, heads, kv_heads, dim, biases=()):
        self.block(layer, attn_q=(heads * dim, WIDTH), attn_k=(kv_heads * dim, WIDTH),
                   attn_v=(kv_heads * dim, WIDTH), attn_output=(WIDTH, heads * dim))
        for part in biases:
            self.add(f"blk.{layer}.attn_{part}.bias",
                     {"q": heads * dim, "output": WIDTH}.get(part, kv_heads * dim))

    def mlp(self, layer, hidden, suffix="", gated=True):
        names = ("gate", "up") if gated else ("up",)
        for name in names:
            self.add(f"blk.{layer}.ffn_{name}{suffix}.weight", hidden, WIDTH)
        self.add(f"blk.{layer}.ffn_down{suffix}.weight", WIDTH, hidden)

    def experts(self, layer, experts, hidden, bias=False):
        self.block(layer, ffn_gate_inp=(experts, WIDTH), ffn_gate_exps=(experts, hidden, WIDTH),
                   ffn_up_exps=(experts, hidden, WIDTH), ffn_down_exps=(experts, WIDTH, hidden))
        if bias:
            self.add(f"blk.{layer}.exp_probs_b.bias", experts)

    def expert_keys(self, count, used, hidden, **more):
        self.keys |= {"expert_count": count, "expert_used_count": used,
                      "expert_feed_forward_length": hidden, **more}

    def yarn(self, factor, original):
        self.keys |= {"rope.scaling.type": "yarn", "rope.scaling.factor": factor,
                      "rope.scaling.original_context_length": original}


def llama_factors():
    v = Variant("llama-factors", "llama", "grouped heads, tied output, frequency factors", 2,
                output=False)
    v.heads(4, 2, 16)
    v.keys |= {"feed_forward_length": 64, "rope.dimension_count": 16, "rope.freq_base": 5e5}
    v.add("rope_freqs.weight", 8, kind="divisors")
    for i in range(2):
        v.block(i, attn_norm=WIDTH, ffn_norm=WIDTH)
        v.attention(i, 4, 2, 16)
        v.mlp(i, 64)
    return v


def qwen3moe():
    v = Variant("qwen3moe", "qwen3moe", "head norms, softmax routing", 2)
    v.heads(4, 2, 16)
    v.keys |= {"feed_forward_length": 64, "rope.freq_base": 1e6}
    v.expert_keys(6, 2, 24)
    for i in range(2):
        v.block(i, attn_norm=WIDTH, ffn_norm=WIDTH, attn_q_norm=16, attn_k_norm=16)
        v.attention(i, 4, 2, 16)
        v.experts(i, 6, 24)
    return v


def gpt_oss():
    v = Variant("gpt-oss", "gpt-oss", "sinks, sliding layers, clamped experts with biases, YaRN", 3)
    v.heads(4, 2, 32)
    v.keys |= {"feed_forward_length": 48, "rope.dimension_count": 32, "rope.freq_base": 1.5e5,
               "attention.sliding_window": 7}
    v.yarn(4.0, 16)
    v.expert_keys(6, 2, 16)
    for i in range(3):
        v.block(i, attn_norm=WIDTH, post_attention_norm=WIDTH)
        v.attention(i, 4, 2, 32, ("q", "k", "v", "output"))
        v.add(f"blk.{i}.attn_sinks.weight", 4, kind="sinks")
        v.experts(i, 6, 16)
        for name, shape in [("inp", (6,)), ("gate_exps", (6, 16)), ("up_exps", (6, 16)),
                            ("down_exps", (6, WIDTH))]:
            stem = "ffn_gate_inp" if name == "inp" else "ffn_" + name
            v.add(f"blk.{i}.{stem}.bias", *shape)
    return v


def latent_keys(v, heads, q_rank, rank, nope, rope, value):
    v.keys |= {"attention.head_count": heads, "attention.head_count_kv": 1,
               "attention.key_length": rank + rope, "attention.value_length": rank,
               "attention.key_length_mla": nope + rope, "attention.value_length_mla": value,
               "attention.kv_lora_rank": rank, "rope.dimension_count": rope}
    if q_rank:
        v.keys["attention.q_lora_rank"] = q_rank


def latent(v, i, heads, q_rank, rank, nope, rope, value):
    if q_rank:
        v.block(i, attn_q_a=(q_rank, WIDTH), attn_q_a_norm=q_rank,
                attn_q_b=(heads * (nope + rope), q_rank))
    else:
        v.block(i, attn_q=(heads * (nope + rope), WIDTH))
    v.block(i, attn_kv_a_mqa=(rank + rope, WIDTH), attn_kv_a_norm=rank,
            attn_k_b=(heads, rank, nope), attn_v_b=(heads, value, rank),
            attn_output=(WIDTH, heads * value))


LATENT = (4, 32, 24, 16, 8, 16)  # heads, query and latent ranks; nope, rope and value dims


def deepseek2():
    v = Variant("deepseek2", "deepseek2", "latent attention, YaRN, grouped sigmoid routing", 2)
    latent_keys(v, *LATENT)
    v.keys |= {"feed_forward_length": 64, "leading_dense_block_count": 1,
               "rope.scaling.yarn_log_multiplier": 0.0707}
    v.yarn(8.0, 16)
    v.expert_keys(8, 3, 16, expert_shared_count=1, expert_weights_scale=2.5,
                  expert_weights_norm=True, expert_gating_func=2, expert_group_count=4,
                  expert_group_used_count=2)
    for i in range(2):
        v.block(i, attn_norm=WIDTH, ffn_norm=WIDTH)
        latent(v, i, *LATENT)
        dense_or_experts(v, i, 1, 64, 8, 16)
    return v


def dense_or_experts(v, i, dense, hidden, experts, expert_hidden):
    if i < dense:
        return v.mlp(i, hidden)
    v.experts(i, experts, expert_hidden, bias=True)
    return v.mlp(i, expert_hidden, "_shexp")


def glm_dsa():
    v = Variant("glm-dsa", "glm-dsa", "token selection, own and shared", 3)
    latent_keys(v, *LATENT)
    v.keys |= {"feed_forward_length": 64, "leading_dense_block_count": 1,
               "attention.indexer.head_count": INDEX_HEADS, "attention.indexer.key_length": 64,
               "attention.indexer.top_k": 5, "attention.indexer.types": [1, 0, 1]}
    v.expert_keys(6, 2, 16, expert_shared_count=1, expert_weights_scale=1.5,
                  expert_weights_norm=True, expert_gating_func=2)
    for i in range(3):
        v.block(i, attn_norm=WIDTH, ffn_norm=WIDTH)
        latent(v, i, *LATENT)
        dense_or_experts(v, i, 1, 64, 6, 16)
        if i != 1:
            v.block(i, indexer__k_norm=64, indexer__proj=(INDEX_HEADS, WIDTH),
                    indexer__attn_k=(64, WIDTH), indexer__attn_q_b=(INDEX_HEADS * 64, 32))
            v.add(f"blk.{i}.indexer.k_norm.bias", 64)
    return v


def deepseek4():
    # 136 tokens: one entry of 128 closes.
    v = Variant("deepseek4", "deepseek4",
                "hyper-connections; window, compressed and chosen entries; routing by table", 3,
                length=136)
    ratios, heads, dim, index = [0, 4, 128], 4, 32, 64
    v.heads(heads, 1, dim)
    v.keys |= {"feed_forward_length": 32, "rope.dimension_count": 16, "rope.freq_base": 1e4,
               "attention.compress_rope_freq_base": 1.6e5, "attention.q_lora_rank": 32,
               "attention.sliding_window": 8, "attention.output_group_count": 2,
               "attention.output_lora_rank": 8, "attention.compress_ratios": ratios,
               "attention.indexer.head_count": INDEX_HEADS, "attention.indexer.key_length": index,
               "attention.indexer.top_k": 3, "hyper_connection.count": 4,
               "hyper_connection.sinkhorn_iterations": 3, "hyper_connection.epsilon": 1e-6,
               "hash_layer_count": 1, "swiglu_clamp_exp": [1.0, 1.0, 10.0]}
    v.yarn(8.0, 16)
    v.keys |= {"rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.yarn_beta_slow": 1.0}
    v.expert_keys(6, 2, 16, expert_shared_count=1, expert_weights_scale=1.5,
                  expert_weights_norm=True, expert_gating_func=4)
    streams(v, "output_hc", 4, 1)
    for i, ratio in enumerate(ratios):
        v.block(i, attn_norm=WIDTH, ffn_norm=WIDTH, attn_q_a=(32, WIDTH), attn_q_a_norm=32,
                attn_q_b=(heads * dim, 32), attn_kv=(dim, WIDTH), attn_kv_a_norm=dim,
                attn_output_a=(2 * 8, heads * dim // 2), attn_output_b=(WIDTH, 2 * 8))
        v.add(f"blk.{i}.attn_sinks.weight", heads, kind="sinks")
        streams(v, f"blk.{i}.hc_attn", 24, 3)
        streams(v, f"blk.{i}.hc_ffn", 24, 3)
        v.experts(i, 6, 16, bias=i > 0)
        v.mlp(i, 16, "_shexp")
        if i == 0:
            v.add("blk.0.ffn_gate_tid2eid.weight", VOCABULARY, 2, kind="table")
        if ratio:
            compressor(v, i, "attn_compressor", ratio, dim, 2 * dim if ratio == 4 else dim)
        if ratio == 4:
            compressor(v, i, "indexer_compressor", ratio, index, 2 * index)
            v.block(i, indexer__proj=(INDEX_HEADS, WIDTH),
                    indexer__attn_q_b=(INDEX_HEADS * index, 32))
    return v


def streams(v, stem, rows, scales):
    v.add(stem + "_fn.weight", rows, 4 * WIDTH)
    v.add(stem + "_base.weight", rows, kind="sinks")
    v.add(stem + "_scale.weight", scales, kind="scale")


def compressor(v, i, stem, ratio, width, channels):
    v.block(i, **{stem + "_kv": (channels, WIDTH), stem + "_gate": (channels, WIDTH),
                  stem + "_ape": (ratio, channels), stem + "_norm": width})


def qwen3next():
    v = Variant("qwen3next", "qwen3next", "Gated DeltaNet, gated attention, gated shared expert", 4)
    v.heads(4, 2, 32)
    key_heads, value_heads, state = 2, 4, 16
    inner, channels = value_heads * state, (2 * key_heads + value_heads) * state
    v.keys |= {"feed_forward_length": 64, "rope.dimension_count": 16, "rope.freq_base": 1e6,
               "ssm.conv_kernel": 4, "ssm.state_size": state, "ssm.group_count": key_heads,
               "ssm.time_step_rank": value_heads, "ssm.inner_size": inner}
    v.expert_keys(6, 2, 16, expert_shared_feed_forward_length=24)
    for i in range(4):
        v.block(i, attn_norm=WIDTH, post_attention_norm=WIDTH)
        if i == 3:
            v.attention(i, 4, 2, 32)
            v.block(i, attn_q=(2 * 4 * 32, WIDTH), attn_q_norm=32, attn_k_norm=32)
        else:
            v.block(i, attn_qkv=(channels, WIDTH), attn_gate=(inner, WIDTH),
                    ssm_conv1d=(channels, 4), ssm_ba=(2 * value_heads, WIDTH), ssm_norm=state,
                    ssm_out=(WIDTH, inner))
            v.add(f"blk.{i}.ssm_dt.bias", value_heads, kind="step")
            v.add(f"blk.{i}.ssm_a", value_heads, kind="decay")
        v.experts(i, 6, 16)
        v.mlp(i, 24, "_shexp")
        v.add(f"blk.{i}.ffn_gate_inp_shexp.weight", WIDTH, kind="bias")
    return v


def kimi_linear():
    v = Variant("kimi-linear", "kimi-linear", "Kimi delta attention, latent attention without rope",
                4)
    dims = (2, 0, 24, 16, 8, 16)
    latent_keys(v, *dims)
    dim, width = 32, 2 * 32
    v.keys |= {"attention.head_count_kv": [0, 0, 0, 1], "feed_forward_length": 64,
               "ssm.conv_kernel": 4, "kda.head_dim": dim, "leading_dense_block_count": 1}
    v.expert_keys(6, 2, 16, expert_shared_count=1, expert_weights_scale=2.4, expert_gating_func=2)
    for i in range(4):
        v.block(i, attn_norm=WIDTH, ffn_norm=WIDTH)
        dense_or_experts(v, i, 1, 64, 6, 16)
        if i == 3:
            latent(v, i, *dims)
            continue
        for part in "qkv":
            v.block(i, **{"attn_" + part: (width, WIDTH)})
            v.add(f"blk.{i}.ssm_conv1d_{part}.weight", 1, width, 1, 4)
        v.block(i, ssm_f_a=(dim, WIDTH), ssm_f_b=(width, dim), ssm_g_a=(dim, WIDTH),
                ssm_g_b=(width, dim), ssm_beta=(2, WIDTH), ssm_norm=dim,
                attn_output=(WIDTH, width))
        v.add(f"blk.{i}.ssm_a", 1, 1, 2, 1, kind="decay")
        v.add(f"blk.{i}.ssm_dt.bias", width, kind="step")
    return v


def minimax_m3():
    v = Variant("minimax-m3", "minimax-m3", "block selection, sigmoid routing with a correction", 2,
                flash=True, tolerance=2e-2,
                reason="llama.cpp's sparse path needs flash attention, which rounds the keys and "
                       "values of dense layers to f16")
    v.heads(4, 2, 32)
    v.keys |= {"feed_forward_length": 64, "rope.dimension_count": 16, "rope.freq_base": 5e6,
               "leading_dense_block_count": 1, "attention.indexer.head_count": 2,
               "attention.indexer.key_length": 32, "attention.indexer.top_k": 3,
               "attention.indexer.block_size": 4, "attention.indexer.local_blocks": 1}
    v.expert_keys(6, 2, 16, expert_shared_count=1, expert_weights_scale=2.0,
                  expert_weights_norm=True, expert_gating_func=2)
    for i in range(2):
        v.block(i, attn_norm=WIDTH, ffn_norm=WIDTH, attn_q_norm=32, attn_k_norm=32)
        v.attention(i, 4, 2, 32)
        dense_or_experts(v, i, 1, 64, 6, 16)
        if i == 1:
            v.block(i, indexer__q_proj=(2 * 32, WIDTH), indexer__k_proj=(32, WIDTH),
                    indexer__q_norm=32, indexer__k_norm=32)
    return v


def gemma4():
    v = Variant("gemma4", "gemma4", "shared keys and values, a row per layer, soft-cap", 6,
                tolerance=3e-2, reason=GELU, output=False)
    swa = [True, True, False] * 2
    v.heads(4, 1, 32)
    v.keys |= {"feed_forward_length": 48, "attention.head_count_kv": [2, 2, 1, 2, 2, 1],
               "attention.key_length_swa": 16, "attention.value_length_swa": 16,
               "rope.dimension_count": 32, "rope.dimension_count_swa": 16, "rope.freq_base": 1e6,
               "rope.freq_base_swa": 1e4, "attention.sliding_window": 8,
               "attention.sliding_window_pattern": swa, "attention.shared_kv_layers": 3,
               "final_logit_softcapping": 3.0, "embedding_length_per_layer_input": 16}
    v.add("per_layer_token_embd.weight", VOCABULARY, 6 * 16)
    v.add("per_layer_model_proj.weight", 6 * 16, WIDTH)
    v.add("per_layer_proj_norm.weight", 16)
    v.add("rope_freqs.weight", 16, kind="divisors")
    for i, slides in enumerate(swa):
        dim, kv = (16, 2) if slides else (32, 1)
        v.block(i, attn_norm=WIDTH, attn_q=(4 * dim, WIDTH), attn_q_norm=dim,
                attn_output=(WIDTH, 4 * dim), post_attention_norm=WIDTH, ffn_norm=WIDTH,
                post_ffw_norm=WIDTH, inp_gate=(16, WIDTH), proj=(WIDTH, 16), post_norm=WIDTH)
        if i < 3:
            v.block(i, attn_k=(kv * dim, WIDTH), attn_k_norm=dim, attn_v=(kv * dim, WIDTH))
        v.add(f"blk.{i}.layer_output_scale.weight", 1, kind="scale")
        v.mlp(i, 48)
    return v


def gemma3():
    v = Variant("gemma3", "gemma3", "sliding and full layers, norms around each branch", 6,
                tolerance=1e-2, reason=GELU, output=False)
    v.heads(4, 2, 16)
    v.keys |= {"feed_forward_length": 48, "rope.freq_base": 1e6, "attention.sliding_window": 8}
    for i in range(6):
        v.block(i, attn_norm=WIDTH, post_attention_norm=WIDTH, ffn_norm=WIDTH, post_ffw_norm=WIDTH,
                attn_q_norm=16, attn_k_norm=16)
        v.attention(i, 4, 2, 16)
        v.mlp(i, 48)
    return v


def mpt():
    v = Variant("mpt", "mpt", "ALiBi with heads that are no power of two, clamped projections", 2,
                tolerance=1e-2, reason=GELU, eps="attention.layer_norm_epsilon", output=False)
    v.keys |= {"attention.head_count": 6, "attention.head_count_kv": 6, "feed_forward_length": 64,
               "attention.clamp_kqv": 1.5, "attention.max_alibi_bias": 8.0}
    for i in range(2):
        v.block(i, attn_norm=WIDTH, ffn_norm=WIDTH, attn_qkv=(3 * WIDTH, WIDTH),
                attn_output=(WIDTH, WIDTH))
        v.mlp(i, 64, gated=False)
    return v


def gpt2():
    v = Variant("gpt2", "gpt2", "learned positions, layer norms, biases", 2, tolerance=1e-2,
                reason=GELU, eps="attention.layer_norm_epsilon")
    v.keys |= {"attention.head_count": 3, "attention.head_count_kv": 3, "feed_forward_length": 64,
               "context_length": 128}
    v.add("position_embd.weight", 128, WIDTH)
    v.add("output_norm.bias", WIDTH)
    for i in range(2):
        v.block(i, attn_norm=WIDTH, ffn_norm=WIDTH, attn_qkv=(3 * WIDTH, WIDTH),
                attn_output=(WIDTH, WIDTH))
        v.mlp(i, 64, gated=False)
        for name, size in [("attn_norm", WIDTH), ("ffn_norm", WIDTH), ("attn_qkv", 3 * WIDTH),
                           ("attn_output", WIDTH), ("ffn_up", 64), ("ffn_down", WIDTH)]:
            v.add(f"blk.{i}.{name}.bias", size)
    return v


def cohere2():
    v = Variant("cohere2", "cohere2", "attention and feed-forward side by side, no rope in some "
                "layers, scaled logits", 5, eps="attention.layer_norm_epsilon", output=False)
    v.keys |= {"attention.head_count": 3, "attention.head_count_kv": 1, "feed_forward_length": 48,
               "logit_scale": 0.25, "rope.freq_base": 5e4, "attention.sliding_window": 8,
               "rope.dimension_count": 16}
    for i in range(5):
        v.block(i, attn_norm=WIDTH)
        v.attention(i, 3, 1, 16)
        v.mlp(i, 48)
    return v


def granitemoe():
    v = Variant("granitemoe", "granitemoe", "scaled embedding, branches, scores and logits", 2,
                output=False)
    v.keys |= {"attention.head_count": 3, "attention.head_count_kv": 3, "feed_forward_length": 24,
               "rope.dimension_count": 16, "embedding_scale": 6.0, "residual_scale": 0.4,
               "attention.scale": 0.11, "logit_scale": 2.0}
    v.expert_keys(6, 2, 24, expert_shared_feed_forward_length=24)
    for i in range(2):
        v.block(i, attn_norm=WIDTH, ffn_norm=WIDTH)
        v.attention(i, 3, 3, 16)
        v.experts(i, 6, 24)
        v.mlp(i, 24, "_shexp")
    return v


def olmo2():
    v = Variant("olmo2", "olmo2", "norms behind the branches only, of whole rows of heads", 2)
    v.keys |= {"attention.head_count": 3, "attention.head_count_kv": 3, "feed_forward_length": 64,
               "rope.freq_base": 5e5}
    for i in range(2):
        v.attention(i, 3, 3, 16)
        v.block(i, attn_q_norm=WIDTH, attn_k_norm=WIDTH, post_attention_norm=WIDTH,
                post_ffw_norm=WIDTH)
        v.mlp(i, 64)
    return v


def phi3():
    v = Variant("phi3", "phi3", "joined projections, LongRoPE", 2)
    v.keys |= {"attention.head_count": 3, "attention.head_count_kv": 1, "feed_forward_length": 64,
               "rope.dimension_count": 16, "attention.sliding_window": 4096,
               "rope.scaling.original_context_length": 64, "rope.scaling.attn_factor": 1.19}
    for length in ("long", "short"):
        v.add(f"rope_factors_{length}.weight", 8, kind="divisors")
    for i in range(2):
        v.block(i, attn_norm=WIDTH, ffn_norm=WIDTH, attn_qkv=((3 + 2) * 16, WIDTH),
                attn_output=(WIDTH, WIDTH), ffn_up=(2 * 64, WIDTH), ffn_down=(WIDTH, 64))
    return v


def bailingmoe2():
    v = Variant("bailingmoe2", "bailingmoe2", "joined projections, normed heads, grouped routing", 2)
    v.heads(4, 2, 12)
    v.keys |= {"feed_forward_length": 64, "rope.dimension_count": 8, "rope.freq_base": 6e5,
               "leading_dense_block_count": 1}
    v.expert_keys(8, 3, 16, expert_shared_count=1, expert_shared_feed_forward_length=16,
                  expert_weights_scale=2.5, expert_weights_norm=True, expert_gating_func=2,
                  expert_group_count=4, expert_group_used_count=2)
    for i in range(2):
        v.block(i, attn_norm=WIDTH, attn_qkv=((4 + 2 + 2) * 12, WIDTH), attn_q_norm=12,
                attn_k_norm=12, attn_output=(WIDTH, 4 * 12), ffn_norm=WIDTH)
        dense_or_experts(v, i, 1, 64, 8, 16)
    return v


def bailingmoe3():
    v = Variant("bailingmoe3", "bailingmoe3",
                "Kimi delta attention with a bounded decay, gated latent attention, clamped experts",
                4)
    dims = (2, 0, 24, 24, 8, 32)
    latent_keys(v, *dims)
    dim, width = 32, 2 * 32
    v.keys |= {"attention.head_count_kv": [0, 0, 0, 1], "feed_forward_length": 64,
               "rope.freq_base": 6e6, "ssm.conv_kernel": 4, "kda.head_dim": dim,
               "kda.safe_gate": True, "kda.gate_lower_bound": -5.0, "leading_dense_block_count": 1,
               "swiglu_clamp_exp": [0.0, 1.0, 1.5, 0.0],
               "swiglu_clamp_shexp": [0.0, 0.8, 0.0, 1.2]}
    v.expert_keys(8, 3, 16, expert_shared_count=1, expert_shared_feed_forward_length=16,
                  expert_weights_scale=2.5, expert_weights_norm=True, expert_gating_func=2,
                  expert_group_count=4, expert_group_used_count=2)
    for i in range(4):
        v.block(i, attn_norm=WIDTH, ffn_norm=WIDTH)
        dense_or_experts(v, i, 1, 64, 8, 16)
        if i == 3:
            latent(v, i, *dims)
            v.block(i, attn_gate=(2, WIDTH))
            continue
        for part in "qkv":
            v.block(i, **{"attn_" + part: (width, WIDTH)})
            v.add(f"blk.{i}.ssm_conv1d_{part}.weight", width, 1, 4)
        v.block(i, ssm_f_a=(width, WIDTH), ssm_g_a=(width, WIDTH), ssm_beta=(2, WIDTH),
                ssm_norm=dim, attn_output=(WIDTH, width))
        v.add(f"blk.{i}.ssm_a", 2, 1, kind="rate")
        v.add(f"blk.{i}.ssm_dt.bias", width, kind="step")
    return v


def qwen35moe():
    v = Variant("qwen35moe", "qwen35moe", "Gated DeltaNet with projections apart, sectioned rope", 4)
    v.heads(4, 2, 32)
    key_heads, value_heads, state = 2, 4, 16
    inner, channels = value_heads * state, (2 * key_heads + value_heads) * state
    v.keys |= {"feed_forward_length": 64, "rope.dimension_count": 16, "rope.freq_base": 1e6,
               "rope.dimension_sections": [3, 3, 2, 0], "full_attention_interval": 4,
               "ssm.conv_kernel": 4, "ssm.state_size": state, "ssm.group_count": key_heads,
               "ssm.time_step_rank": value_heads, "ssm.inner_size": inner}
    v.expert_keys(6, 2, 16, expert_shared_feed_forward_length=24)
    for i in range(4):
        v.block(i, attn_norm=WIDTH, post_attention_norm=WIDTH)
        if i == 3:
            v.attention(i, 4, 2, 32)
            v.block(i, attn_q=(2 * 4 * 32, WIDTH), attn_q_norm=32, attn_k_norm=32)
        else:
            v.block(i, attn_qkv=(channels, WIDTH), attn_gate=(inner, WIDTH),
                    ssm_conv1d=(channels, 4), ssm_alpha=(value_heads, WIDTH),
                    ssm_beta=(value_heads, WIDTH), ssm_norm=state, ssm_out=(WIDTH, inner))
            v.add(f"blk.{i}.ssm_dt.bias", value_heads, kind="step")
            v.add(f"blk.{i}.ssm_a", value_heads, kind="decay")
        v.experts(i, 6, 16)
        v.mlp(i, 24, "_shexp")
        v.add(f"blk.{i}.ffn_gate_inp_shexp.weight", WIDTH, kind="bias")
    return v


def all_variants():
    return [make() for make in (
        llama_factors, phi3, gpt2, mpt, cohere2, olmo2, gemma3, gemma4, granitemoe, qwen3moe,
        gpt_oss, deepseek2, glm_dsa, deepseek4, minimax_m3, qwen3next, kimi_linear,
        bailingmoe2, bailingmoe3, qwen35moe)]
