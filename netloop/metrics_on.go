//go:build !nometrics

package netloop

// countMetrics enables the metrics. It is false in a library for measuring their cost.
const countMetrics = true
