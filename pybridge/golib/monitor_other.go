//go:build !linux

package main

import "time"

func membarrierRegister() bool { return false }

func membarrier() {}

func sleep(d time.Duration) { time.Sleep(d) }

func nameThread(string) {}
