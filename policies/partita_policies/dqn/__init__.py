"""A deep Q-network that chooses which waiting jobs go together on a GPU.

After J. Oh, "A Job Placement Using Reinforcement Learning in GPU Virtualization Environment"
(2019), section IV: an image of what is allocated on four resources over the next steps, images of
combinations of waiting jobs, and a network that chooses a combination or to wait. Departures from
the study, each for a reason that the ablation in `docs/policies.md` shows:

- one scorer shared by all combinations, so that the window and the number of GPUs may change;
- beside the images, what the interference model predicts for each combination;
- combinations for which there is no room, or that would take longer than in turns, are masked;
- double and dueling Q-learning instead of the study's update.

Deciding
    `demand` (what jobs ask for), `board` (what is offered to whom), `forecast` (what would become
    of it), `observation` (as numbers), `served` (the network, by ONNX Runtime), `policy`.
Learning, with torch
    `configuration`, `environment`, `replay`, `network`, `learning`, `training`, `checkpoint`,
    `export`; `workloads` says what is learnt from.
"""

from partita_policies.dqn.policy import DQN, DQNParameters
from partita_policies.dqn.served import ModelError, ModelOutputError, ScoringModel

__all__ = ["DQN", "DQNParameters", "ModelError", "ModelOutputError", "ScoringModel"]
