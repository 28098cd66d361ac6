"""An agent whose import imports numpy, and so seeds its generator, as many do."""

import random

import numpy.random


def draw(value):
    return [random.random(), float(numpy.random.random())]
