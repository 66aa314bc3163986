# SPDX-License-Identifier: Apache-2.0
"""Kimi K3's forward pass for make_models.py, until transformers has the model.

The recurrence is that of transformers (models/kimi_linear); what stands around it (attention
residual, SiTU, output gates, experts in a narrower space) is written here from the published
description. So of those parts this is a second reading, not a second school.
"""
import torch
import torch.nn.functional as F
from transformers.models.kimi_linear.modeling_kimi_linear import recurrent_kimi_delta_attention

# The norms of both latents keep this eps, whatever the layers have.
LATENT_EPS = 1e-6


class KimiK3:
    def __init__(self, config, tensors):
        self.config, self.linear_config = config, config["linear_attn_config"]
        self.tensors = tensors  # without the prefix of the language model

    def weight(self, name):
        return self.tensors[name + ".weight"]

    def project(self, x, name):
        return x @ self.weight(name).T

    def rms(self, x, name, eps=None):
        eps = eps or self.config["rms_norm_eps"]
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * self.weight(name)

    def situ(self, gate, up):
        beta = self.config["activation_situ_beta"]
        linear_beta = self.config["activation_situ_linear_beta"]
        return (beta * torch.tanh(gate / beta) * torch.sigmoid(gate) *
                linear_beta * torch.tanh(up / linear_beta))

    def mix(self, stream, blocks, name):
        """Attention residual: over the states laid aside and the one that runs on, oldest first."""
        candidates = torch.stack([*blocks, stream], 1)
        scores = self.project(self.rms(candidates, name + "_norm"), name + "_proj")
        return (scores.softmax(1) * candidates).sum(1)

    def delta(self, x, at):
        heads, dim = self.linear_config["num_heads"], self.linear_config["head_dim"]

        def channels(part):
            kernel = self.weight(f"{at}{part}_conv1d")
            rows = F.pad(self.project(x, f"{at}{part}_proj").T, (kernel.shape[-1] - 1, 0))
            out = F.silu(F.conv1d(rows[None], kernel, groups=kernel.shape[0]))[0]
            return out.T.reshape(1, -1, heads, dim)

        raw = self.project(self.project(x, at + "f_a_proj"), at + "f_b_proj")
        raw = (raw + self.tensors[at + "dt_bias"]).reshape(1, -1, heads, dim)
        rate = self.tensors[at + "A_log"][:heads].exp()[:, None]
        decay = self.linear_config["gate_lower_bound"] * torch.sigmoid(rate * raw)
        out, _ = recurrent_kimi_delta_attention(
            channels("q"), channels("k"), channels("v"), g=decay,
            beta=torch.sigmoid(self.project(x, at + "b_proj"))[None], initial_state=None,
            output_final_state=False, use_qk_l2norm_in_kernel=True)
        gate = self.project(x, at + "g_proj").reshape(-1, heads, dim)
        normed = self.rms(out[0], at + "o_norm") * torch.sigmoid(gate)
        return self.project(normed.flatten(1), at + "o_proj")

    def attention(self, x, at):
        c = self.config
        heads, nope, value = c["num_attention_heads"], c["qk_nope_head_dim"], c["v_head_dim"]
        rank, shared = c["kv_lora_rank"], c["qk_rope_head_dim"]
        latent = self.rms(self.project(x, at + "q_a_proj"), at + "q_a_layernorm", LATENT_EPS)
        query = self.project(latent, at + "q_b_proj").reshape(-1, heads, nope + shared)
        both = self.project(x, at + "kv_a_proj_with_mqa")
        latent = self.rms(both[:, :rank], at + "kv_a_layernorm", LATENT_EPS)
        pairs = self.project(latent, at + "kv_b_proj").reshape(-1, heads, nope + value)
        common = both[:, None, rank:].expand(-1, heads, -1)  # of all heads; it never turns
        key = torch.cat([pairs[..., :nope], common], -1)
        scores = torch.einsum("qhd,khd->hqk", query, key) * (nope + shared) ** -0.5
        later = torch.ones_like(scores, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        out = torch.einsum("hqk,khd->qhd", weights, pairs[..., nope:]).flatten(1)
        return self.project(out * torch.sigmoid(self.project(x, at + "g_proj")), at + "o_proj")

    def mlp(self, x, at, names=("gate_proj", "up_proj", "down_proj")):
        gate, up, down = (at + name for name in names)
        return self.project(self.situ(self.project(x, gate), self.project(x, up)), down)

    def experts(self, x, at):
        scores = torch.sigmoid(self.project(x, at + "gate"))
        choice = scores + self.tensors[at + "gate.e_score_correction_bias"]
        chosen = choice.topk(self.config["num_experts_per_token"], -1).indices
        weights = scores.gather(1, chosen)
        weights = weights / weights.sum(-1, keepdim=True) * self.config["routed_scaling_factor"]
        latent = self.project(x, at + "routed_expert_down_proj")
        out = torch.zeros_like(latent)
        for e in range(self.config["num_experts"]):
            token, slot = torch.where(chosen == e)
            rows = self.mlp(latent[token], f"{at}experts.{e}.", ("w1", "w3", "w2"))
            out.index_add_(0, token, rows * weights[token, slot, None])
        out = self.project(self.rms(out, at + "routed_expert_norm"), at + "routed_expert_up_proj")
        return out + self.mlp(x, at + "shared_experts.")

    def logits(self, ids):
        stream, blocks = self.weight("embed_tokens")[ids], []
        for layer in range(self.config["num_hidden_layers"]):
            at = f"layers.{layer}."
            x = self.mix(stream, blocks, at + "self_attention_res") if blocks else stream
            if layer % self.config["attn_res_block_size"] == 0:
                blocks.append(stream)
                stream = 0
            x = self.rms(x, at + "input_layernorm")
            attends = layer + 1 in self.linear_config["full_attn_layers"]
            stream = stream + (self.attention if attends else self.delta)(x, at + "self_attn.")
            x = self.rms(self.mix(stream, blocks, at + "mlp_res"), at + "post_attention_layernorm")
            dense = layer < self.config["first_k_dense_replace"]
            stream = stream + (self.mlp(x, at + "mlp.") if dense
                               else self.experts(x, at + "block_sparse_moe."))
        out = self.rms(self.mix(stream, blocks, "output_attn_res"), "norm")
        return self.project(out, "lm_head")
