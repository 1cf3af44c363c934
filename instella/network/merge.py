import torch
def mean_state(states):
    return {k:(sum((s[k].double() for s in states[1:]),states[0][k].double())/len(states)).to(states[0][k].dtype) for k in states[0]}
