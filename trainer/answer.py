"""`python -m trainer.answer MODEL_DIR "QUESTION"`: load a finished model and print one answer."""

import argparse
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar


def main() -> int:
    """Answer the question greedily: the same model always gives the same answer."""
    parser = argparse.ArgumentParser(prog="python -m trainer.answer", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("question")
    parser.add_argument("--tokens", type=int, default=48)
    options = parser.parse_args()
    disable_progress_bar()  # of transformers, which calls loading "Loading weights"
    sys.stderr.write(f"loading {options.model} ...\n")
    tokenizer = AutoTokenizer.from_pretrained(options.model, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(options.model, local_files_only=True).eval()
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": options.question}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    sys.stderr.write(f"answering, at most {options.tokens} tokens ...\n")
    with torch.no_grad():
        generated = model.generate(**prompt, max_new_tokens=options.tokens, do_sample=False)
    answer = generated[0, prompt["input_ids"].shape[1] :]
    sys.stdout.write(tokenizer.decode(answer, skip_special_tokens=True).strip() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
