import json, shutil
from instella import canonical
from instella.network.network import Instella
from instella.recipe.settings import Model
def save_folder(folder, network, tokenizer, maxp):
    s=network.settings
    canonical.write_json(folder/'config.json',{**{k:getattr(s,k) for k in s.__dataclass_fields__},'model_type':'instella','max_position_embeddings':maxp})
    canonical.write_safetensors(folder/'model.safetensors',network.state_dict())
    for n in ('tokenizer.json','tokenizer_config.json','special_tokens_map.json'): shutil.copyfile(tokenizer/n,folder/n)
def load_folder(folder, numerics):
    from safetensors.torch import load_file
    c=json.loads((folder/'config.json').read_text())
    n=Instella(Model(**{k:c[k] for k in Model.__dataclass_fields__}),numerics); n.load_state_dict(load_file(folder/'model.safetensors')); return n
