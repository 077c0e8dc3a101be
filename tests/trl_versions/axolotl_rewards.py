"""Reward functions that an axolotl configuration gives by dotted names."""

from __future__ import annotations

from guerdon import Dispatcher
from tests.trl_versions import rewards

dispatcher = Dispatcher([rewards.digits, rewards.unlucky], workers=1, max_failure_rate=1)
digits_reward, unlucky_reward = dispatcher.reward_funcs
