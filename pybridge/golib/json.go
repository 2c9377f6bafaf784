package main

import (
	"strconv"
	"unicode/utf8"
)

// appendJSON appends a string as JSON, with its quotes. (encoding/json would make the library 20 % larger.)
func appendJSON(to []byte, text string) []byte {
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

// appendPlace appends a place in a program as a JSON array: function, file and line.
func appendPlace(to []byte, function, file string, line int64) []byte {
	to = append(appendJSON(append(to, '['), function), ',')
	to = append(appendJSON(to, file), ',')
	return append(strconv.AppendInt(to, line, 10), ']')
}
