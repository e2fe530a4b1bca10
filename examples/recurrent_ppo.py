"""Recurrent PPO: whole rollouts in one call, with `resets` where episodes begin.

    python examples/recurrent_ppo.py          # a few minutes on two cores
    python examples/recurrent_ppo.py --gym    # CartPole without velocities; harder, tune it

A cue is shown at the first step only; the last action must repeat it (0.25 without memory).
"""

import argparse

import torch
from torch import Tensor, nn

from rotcell import RotLSTM

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--gym", action="store_true", help="CartPole-v1 from gymnasium, no velocities")
parser.add_argument("--updates", type=int, default=80)
parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")


class RememberTheCue:
    """`count` environments in one; each episode has 8 to 12 steps."""

    observations, actions = 6, 4

    def __init__(self, count: int) -> None:
        self.cue, self.left = torch.zeros(count, dtype=torch.long), torch.ones(count)
        self.first = self.step(self.cue)[0]

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The next observation (of a new episode where one ended), rewards and ends."""
        done = self.left.sub_(1) == 0
        reward = (done & (action == self.cue)).float()
        self.cue = torch.where(done, torch.randint(self.actions, done.shape), self.cue)
        self.left = torch.where(done, torch.randint(8, 13, done.shape), self.left)
        cue = nn.functional.one_hot(self.cue, self.actions) * done[:, None]
        x = torch.cat([cue, (self.left == 1)[:, None], torch.rand(len(done), 1)], 1)
        return x, reward, done


class HiddenCartPole:
    """CartPole whose velocities are not shown: the policy must estimate them over time."""

    observations, actions, limits = 2, 2, torch.tensor([2.4, 0.21])

    def __init__(self, count: int) -> None:
        import gymnasium

        options = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
        self.env = gymnasium.make_vec("CartPole-v1", count, "sync", options)
        self.first = torch.as_tensor(self.env.reset(seed=0)[0])[:, [0, 2]] / self.limits

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, reward, ended, cut, _ = self.env.step(action.numpy())
        x, reward, done = map(torch.as_tensor, (x[:, [0, 2]], reward, ended | cut))
        return x / self.limits, reward.float(), done


class Policy(nn.Module):
    def __init__(self, observations: int, actions: int) -> None:
        super().__init__()
        self.layer = RotLSTM(observations, 64)
        self.action, self.value = nn.Linear(64, actions), nn.Linear(64, 1)

    def forward(self, x: Tensor, state, resets: Tensor):
        """x [T, B, observations]; `resets` [T, B] is true where an episode begins."""
        output, state = self.layer(x, state, resets=resets)
        actions = torch.distributions.Categorical(logits=self.action(output))
        return actions, self.value(output).squeeze(-1), state


def main() -> None:
    options = parser.parse_args()
    torch.manual_seed(0)
    steps, count = 64, 32
    env = (HiddenCartPole if options.gym else RememberTheCue)(count)
    policy = Policy(env.observations, env.actions)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    x, begins, state = env.first, torch.ones(count, dtype=torch.bool), None
    returns, finished = torch.zeros(count), []
    for update in range(1, (2 if options.quick else options.updates) + 1):
        first_state, rollout = state, []
        with torch.no_grad():
            for _ in range(steps):
                actions, value, state = policy(x[None], state, begins[None])
                action = actions.sample()
                next_x, reward, done = env.step(action[0])
                log_prob = actions.log_prob(action)[0]
                rollout.append((x, begins, action[0], log_prob, value[0], reward, done))
                returns += reward
                finished += returns[done].tolist()
                returns, x, begins = returns * ~done, next_x, done
            last_value = policy(x[None], state, begins[None])[1][0]
        columns = map(torch.stack, zip(*rollout, strict=True))
        xs, resets, taken, old, values, rewards, dones = columns
        advantages, following, later = torch.zeros_like(rewards), last_value, 0.0
        for t in reversed(range(steps)):  # generalized advantage estimation
            error = rewards[t] + 0.98 * following * ~dones[t] - values[t]
            advantages[t] = later = error + 0.98 * 0.95 * later * ~dones[t]
            following = values[t]
        targets, gains = advantages + values, (advantages - advantages.mean()) / advantages.std()
        for _ in range(4):  # each pass over the rollout is one call of the layer
            actions, value, _ = policy(xs, first_state, resets)
            ratio = (actions.log_prob(taken) - old).exp()
            gain = torch.minimum(ratio * gains, ratio.clamp(0.8, 1.2) * gains)
            error = nn.functional.smooth_l1_loss(value, targets)
            loss = 0.5 * error - (gain + 0.01 * actions.entropy()).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
        if update % 10 == 0 or options.quick:
            recent = finished[-500:]
            print(f"update {update:3}: mean return {sum(recent) / len(recent):.2f}", flush=True)


if __name__ == "__main__":
    main()
