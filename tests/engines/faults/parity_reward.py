"""A reward that an untrained network earns half of the time, so that its weights move."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    return {"score": float(len(solution_str) % 2)}
