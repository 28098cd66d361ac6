"""An agent whose import imports numpy, as many do."""

import random

import numpy


def draw(value):
    return [random.random(), float(numpy.random.random())]
