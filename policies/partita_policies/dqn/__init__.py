"""A deep Q-network that chooses which waiting jobs share a GPU.

Source: J. Oh, "A Job Placement Using Reinforcement Learning in GPU Virtualization Environment"
(2019), section IV. The inputs are an image of the allocation of four resources over the next
steps and images of combinations of waiting jobs. The network chooses a combination or to wait.
Departures from the study (the ablation in `docs/policies.md` shows the effects):

- one scorer is shared by all combinations, so that the window and the number of GPUs can change;
- the predictions of the interference model for each combination are inputs beside the images;
- combinations that do not fit, or that take longer than one job after the other, are masked;
- double and dueling Q-learning replace the study's update.

Modules for a decision: `demand` (resource demands of jobs), `offers` (jobs offered to each GPU),
`job_arrays`, `combination_forecast` (predicted durations), `prices` and `work_values`,
`observation` (network inputs), `served` (inference with ONNX Runtime), `policy`.
`configuration` contains the settings of a training; `partita_research.training` trains with torch.
"""

from partita_policies.dqn.policy import DQN, DQNParameters
from partita_policies.dqn.served import ModelError, ModelOutputError, ScoringModel

__all__ = ["DQN", "DQNParameters", "ModelError", "ModelOutputError", "ScoringModel"]
