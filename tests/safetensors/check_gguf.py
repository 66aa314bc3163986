# SPDX-License-Identifier: Apache-2.0
"""What lemma makes of a folder, read by another engine. By hand, in two steps:

    python check_gguf.py make FOLDER            # needs torch, transformers, tokenizers
    python check_gguf.py compare LEMMA FOLDER   # needs xllamacpp, numpy

`make` saves tiny seeded models of transformers with tokenizers of the kinds that GGUF can say
(byte-level BPE as Llama 3 and Qwen have it, BPE with byte tokens as Llama 2 and Gemma have it,
Unigram, WordPiece), trained
on the documents of this project, and beside each the ids of some texts and the logits of one. `compare` lets
`lemma quantize` write GGUF files and asks llama.cpp for the same ids and logits.
"""
import ctypes as c
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["Hello world, it's 12345 tests!\n\n  Two blanks", "naïve café 你好世界 привет 🤦", " a  b\tc\n",
         "fn(x) -> [1, 2]; // don't", "", "The quick brown fox's 3.14"]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
BLANK = "\u2581"
# llama.cpp has no key for Gemma's scale and takes the head's size.
OWN = {"Gemma3": dict(query_pre_attn_scalar=16),
       "Qwen3_5": dict(layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2,
                       linear_num_value_heads=6, linear_key_head_dim=8, linear_value_head_dim=8,
                       rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_interleaved=True,
                                            partial_rotary_factor=0.5, mrope_section=[2, 1, 1]))}


def byte_level(pattern, special, normalizer=None, ignore_merges=False, bos=None):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, trainers.BpeTrainer(
        vocab_size=600, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens(special)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))])
    return tokenizer


def with_byte_tokens(special, prefix):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    train(tokenizer, trainers.BpeTrainer(
        vocab_size=700, show_progress=False, limit_alphabet=150,
        special_tokens=special + [f"<0x{i:02X}>" for i in range(256)]))
    # As the published files have it; training needs words.
    replace = normalizers.Replace(" ", BLANK)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(BLANK), replace]) if prefix else replace
    tokenizer.pre_tokenizer = None
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
        + ([decoders.Strip(" ", 1, 0)] if prefix else []))
    bos = special[1]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))])
    plain = json.loads(tokenizer.to_str())
    plain["added_tokens"] = [t for t in plain["added_tokens"] if not t["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(plain))


def unigram(special):
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Strip(),
                                                 normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    train(tokenizer, trainers.UnigramTrainer(vocab_size=700, show_progress=False, unk_token="<unk>",
                                             special_tokens=special))
    return tokenizer


def wordpiece(special):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    train(tokenizer, trainers.WordPieceTrainer(vocab_size=700, show_progress=False,
                                               special_tokens=special))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in ("[CLS]", "[SEP]")])
    return tokenizer


def train(tokenizer, trainer):
    files = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "src/base").glob("*.cpp"))]
    tokenizer.train_from_iterator([f.read_text() for f in files] + TEXTS, trainer)


def make(folder):
    import make_fixtures
    import torch
    import transformers
    from tokenizers import normalizers
    qwen = LLAMA3.replace("{1,3}", "")
    cases = {
        "llama": ("Llama", dict(bos="<|begin_of_text|>", eos="<|end_of_text|>"),
                  lambda: byte_level(LLAMA3, ["<|begin_of_text|>", "<|end_of_text|>"],
                                     ignore_merges=True, bos="<|begin_of_text|>")),
        "llama2": ("Llama", dict(bos="<s>", eos="</s>"),
                   lambda: with_byte_tokens(["<unk>", "<s>", "</s>"], True)),
        "qwen3": ("Qwen3", dict(eos="<|im_end|>"),
                  lambda: byte_level(qwen, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                                     normalizer=normalizers.NFC())),
        "gemma3": ("Gemma3", dict(bos="<bos>", eos="<eos>"),
                   lambda: with_byte_tokens(["<unk>", "<bos>", "<eos>"], False)),
        "qwen3_5": ("Qwen3_5", dict(eos="<|im_end|>"),
                    lambda: byte_level(qwen, ["<|endoftext|>", "<|im_end|>"])),
        "unigram": ("Llama", dict(eos="</s>"), lambda: unigram(["<pad>", "</s>", "<unk>"])),
        "wordpiece": ("Llama", dict(cls="[CLS]", sep="[SEP]", mask="[MASK]"),
                      lambda: wordpiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])),
    }
    for name, (kind, roles, make_tokenizer) in cases.items():
        tokenizer = make_tokenizer()
        path = Path(folder) / name
        text = "Text" if kind in ("Gemma3", "Qwen3_5") else ""
        config = getattr(transformers, f"{kind}{text}Config")(
            hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            intermediate_size=96, num_hidden_layers=2, max_position_embeddings=256,
            vocab_size=tokenizer.get_vocab_size() + 8, tie_word_embeddings=True,
            **OWN.get(kind, {}))
        config._attn_implementation = "eager"
        torch.manual_seed(1)
        model = getattr(transformers, f"{kind}ForCausalLM")(config).to(torch.float32).eval()
        make_fixtures.seed_weights(model, make_fixtures.SMALL, torch.Generator().manual_seed(1))
        model.tie_weights()
        model.save_pretrained(path)
        tokenizer.save(str(path / "tokenizer.json"))
        (path / "tokenizer_config.json").write_text(
            json.dumps({f"{role}_token": token for role, token in roles.items()}))
        ids = [tokenizer.encode(t).ids for t in TEXTS]
        with torch.no_grad():
            rows = model(input_ids=torch.tensor([ids[0]])).logits[0]
        (path / "ids.json").write_text(json.dumps(ids))
        (path / "answer.f32").write_bytes(rows.contiguous().numpy().astype("<f4").tobytes())


def llama_ids(path, texts):
    """What llama.cpp makes of each text, special tokens added as the file says."""
    import peer
    library = peer.library()
    library.llama_tokenize.restype = c.c_int32
    library.llama_tokenize.argtypes = [c.c_void_p, c.c_char_p, c.c_int32, c.POINTER(c.c_int32),
                                       c.c_int32, c.c_bool, c.c_bool]
    model = library.llama_model_load_from_file(str(path).encode(),
                                               library.llama_model_default_params())
    assert model, f"llama.cpp does not open {path}"
    vocabulary, found = library.llama_model_get_vocab(model), []
    for text in texts:
        raw, room = text.encode(), (c.c_int32 * 1024)()
        n = library.llama_tokenize(vocabulary, raw, len(raw), room, 1024, True, False)
        found.append(list(room[:n]))
    library.llama_model_free(model)
    return found


def compare(lemma, folder):
    import numpy as np
    import peer
    failed = False
    for path in sorted(p for p in Path(folder).iterdir() if p.is_dir()):
        out = Path(folder) / f"{path.name}.gguf"
        out.unlink(missing_ok=True)
        run = subprocess.run([lemma, "quantize", path, out, "F32"], capture_output=True, text=True)
        if run.returncode:
            raise SystemExit(run.stderr)
        if "tokenizer.json alone" in run.stderr:  # training is not seeded, and Unigram has ties
            print(f"{path.name}: not said in GGUF's keys; {run.stderr.strip()}")
            continue
        ids = json.loads((path / "ids.json").read_text())
        found = llama_ids(out, TEXTS)
        answer = np.fromfile(path / "answer.f32", "<f4").reshape(len(ids[0]), -1)
        logits = peer.logits(out, [ids[0]])
        error = np.abs(logits[:, :answer.shape[1]] - answer).max() / np.abs(answer).max()
        same = found == ids
        failed |= not same or error > 1e-3
        print(f"{path.name}: ids {'equal' if same else 'differ'}, logits off by {error:.1e} of the largest")
        for text, theirs, ours in zip(TEXTS, ids, found):
            if theirs != ours:
                print(f"  {text!r}: tokenizers {theirs}, llama.cpp {ours}")
    raise SystemExit(failed)


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tests/fixtures"), str(ROOT / "tests/goldens")]
    {"make": make, "compare": compare}[sys.argv[1]](*sys.argv[2:])
