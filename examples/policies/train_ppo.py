"""Train a policy with sb3-contrib's MaskablePPO, and compare it with another one.

pip install 'partita[train]' sb3-contrib
python train_ppo.py 100000
"""

import sys

import gymnasium
import torch
from sb3_contrib import MaskablePPO

from partita_policies import GPU, Policy, create
from partita_research.environment import ChoicePolicy
from partita_research.environment.choices import Bools, Floats
from partita_research.environment.scheduling import ID, synthetic_workload
from partita_research.simulator import simulate

GPUS = (GPU("gpu-0", "node-0", 16 << 30, max_jobs=48, pcie_bandwidth=15_750_000_000),)
HELD_OUT = range(1_000_000_000, 1_000_000_020)  # the environment draws smaller numbers only


def main(steps: int) -> dict[str, float]:
    """Return the mean makespan of each policy on workloads that were not trained on."""
    torch.set_num_threads(1)  # a small network is faster with one
    env = gymnasium.make(ID, gpus=GPUS, window=8)
    model = MaskablePPO("MlpPolicy", env, gamma=1.0, n_steps=512, seed=0, device="cpu")
    model.learn(steps)

    def choose(observation: Floats, mask: Bools) -> int:
        return int(model.predict(observation, action_masks=mask, deterministic=True)[0])

    def makespan(policy: Policy) -> float:
        workloads = [synthetic_workload(number, GPUS) for number in HELD_OUT]
        return sum(simulate(tasks, GPUS, policy).makespan for tasks in workloads) / len(HELD_OUT)

    trained = ChoicePolicy(choose, window=8, gpus=len(GPUS))
    return {"trained": makespan(trained), "fifo": makespan(create("fifo"))}


if __name__ == "__main__":
    print(main(int(sys.argv[1])))
