//go:build nometrics

package netloop

const countMetrics = false
