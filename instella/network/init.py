import hashlib, math
import numpy as np, torch
def initialize(network, seed):
    H=network.settings.hidden_size; I=network.settings.intermediate_size
    for name,p in network.named_parameters():
        if p.dim()==1: continue
        std=1/math.sqrt(I if 'down_proj' in name else H)
        if 'o_proj' in name or 'down_proj' in name:
            std/=math.sqrt(2*(int(name.split('.')[2])+1))
        key=int.from_bytes(hashlib.sha256(f'{seed} {name}'.encode()).digest()[:16],'little')
        g=np.random.Generator(np.random.Philox(key=key)); x=g.standard_normal(p.numel()*2); x=x[np.abs(x)<=3][:p.numel()]
        p.data.copy_(torch.from_numpy((x*std).astype(np.float32)).view(p.shape))
