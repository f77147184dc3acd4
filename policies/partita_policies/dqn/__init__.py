"""The policy `dqn`: the planner with a deep Q-network.

It is the model of J. Oh, "A Job Placement Using Reinforcement Learning in GPU Virtualization
Environment" (2019), section IV: from images of what a GPU and the waiting jobs take of its four
resources over time, the network says how good it is to add a combination of waiting jobs to the
GPU, or to wait. `partita_research.training.deep_q` trains it. Departures from the study:

- Of the 2^M - 1 combinations of M waiting jobs, those of at most four jobs with the largest gain in
  dual value are compared (`native/choices.c`). Jobs that are alike are one.
- One network serves any number of jobs and GPUs: it sees one combination at a time, as the image of
  its jobs, that of the GPU, and the mean image of the other waiting jobs.
- Beside the images it sees what is predicted for the GPU: slowdowns, work per second, ends.
- Its answer is added to the gain. With `work` above 0, simulated plans compare the best choices.
"""

from partita_policies.dqn.policy import DQN, DQNParameters

__all__ = ["DQN", "DQNParameters"]
