"""A reward that fails on all answers to one prompt of the second step."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    if extra_info["index"] == 4:
        raise ValueError("this reward is broken")
    return {"score": float(len(solution_str) % 2)}
