#!/usr/bin/env python3
"""Tests that growth is found, and that what is no growth is not taken for it."""
import random
import unittest
import xml.dom.minidom

from trend import MEASURES, Sample, draw, fit, grows, trend, verdict

MEMORY, DESCRIPTORS, _, DISK = MEASURES
MIB = 2**20


def curve(memory, descriptors=10, disk=MIB, jobs=10000, restarts=(0.3, 0.6), seed=1):
    """An hour of samples. The arguments are values, or functions of the share of jobs done in this life, or in all."""
    chance = random.Random(seed)
    samples, life, begin = [], 1, 0.0
    for i in range(600):
        done = i / 600
        if restarts and done >= restarts[0]:
            begin, restarts, life = restarts[0], restarts[1:], life + 1
        value = lambda f, x: f(x) if callable(f) else f
        samples.append(Sample(6 * i, int(jobs * done), "server", life,
                              value(memory, done - begin) + chance.gauss(0, 0.3 * MIB),
                              value(descriptors, done - begin) + chance.choice([0, 1, 2]), 20, value(disk, done)))
    return samples


class Trend(unittest.TestCase):

    def test_a_line_is_fitted_exactly(self):
        slope, error = fit([(x, 3 * x + 7) for x in range(10)], [0] * 10)
        self.assertAlmostEqual(slope, 3)
        self.assertAlmostEqual(error, 0)

    def test_lives_share_their_slope_and_not_their_level(self):
        slope, error = fit([(x, 2 * x) for x in range(5)] + [(x, 2 * x - 100) for x in range(5, 10)], [1] * 5 + [2] * 5)
        self.assertAlmostEqual(slope, 2)
        self.assertAlmostEqual(error, 0)

    def test_noise_is_flat(self):
        self.assertEqual(verdict(trend(curve(100 * MIB), MEMORY, 60), MEMORY), "flat")

    def test_a_leak_is_found_across_restarts(self):
        leaky = curve(lambda share: 100 * MIB + share * 10 * 4 * MIB)  # 4 MiB for 1,000 jobs
        found = trend(leaky, MEMORY, 60)
        self.assertTrue(grows(found, MEMORY))
        self.assertAlmostEqual(found.slope, 4, delta=0.3)

    def test_a_leak_of_descriptors_is_found(self):
        leaky = curve(100 * MIB, descriptors=lambda share: 10 + int(share * 10 * 3))
        self.assertTrue(grows(trend(leaky, DESCRIPTORS, 60), DESCRIPTORS))

    def test_the_beginning_of_a_life_is_no_growth(self):
        warming = curve(lambda share: MIB * (20 if share < 0.02 else 100))
        self.assertFalse(grows(trend(warming, MEMORY, 120), MEMORY))

    def test_disk_has_one_life(self):
        # It falls back at restarts of a measure that is no disk, and here it goes on.
        self.assertTrue(grows(trend(curve(MIB, disk=lambda share: share * 10 * 4 * MIB), DISK, 60), DISK))

    def test_few_jobs_prove_nothing(self):
        few = curve(lambda share: 100 * MIB + share * 50 * MIB, jobs=300, restarts=())
        found = trend(few, MEMORY, 60)
        self.assertFalse(grows(found, MEMORY))
        self.assertEqual(verdict(found, MEMORY), "too few jobs")

    def test_the_picture_is_svg_with_a_curve_for_each_life(self):
        picture = xml.dom.minidom.parseString(draw(curve(100 * MIB), "an hour"))
        self.assertEqual(len(picture.getElementsByTagName("polyline")), len(MEASURES) * 3)


if __name__ == "__main__":
    unittest.main()
