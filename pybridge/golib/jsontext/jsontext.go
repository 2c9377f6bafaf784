// Package jsontext writes values as JSON. (encoding/json would make the library 20 % larger.)
package jsontext

import (
	"strconv"
	"unicode/utf8"
)

// AppendString appends a string, with its quotes.
func AppendString(to []byte, text string) []byte {
	to = append(to, '"')
	for _, r := range text { // invalid UTF-8 becomes U+FFFD
		switch {
		case r == '"' || r == '\\':
			to = append(to, '\\', byte(r))
		case r < ' ' || r == 0x7f:
			to = append(to, `\u00`...)
			to = append(to, "0123456789abcdef"[r>>4], "0123456789abcdef"[r&15])
		default:
			to = utf8.AppendRune(to, r)
		}
	}
	return append(to, '"')
}

// AppendPlace appends a place in a program as an array: function, file and line.
func AppendPlace(to []byte, function, file string, line int64) []byte {
	to = append(AppendString(append(to, '['), function), ',')
	to = append(AppendString(to, file), ',')
	return append(strconv.AppendInt(to, line, 10), ']')
}
