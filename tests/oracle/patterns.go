package main

import "regexp"

// A regular expression with texts to search, and the matches that Go finds.
type patternCase struct {
	Pattern  string   `json:"pattern"`
	Subjects []string `json:"subjects"`
	// The reason why the pattern is invalid; empty if it is valid.
	Error string `json:"error,omitempty"`
	// For each subject, all matches in order; null if there are none.
	Found [][]string `json:"found,omitempty"`
}

// findPatterns computes the result of a case. The first match is the result of `find` in CEL, all
// matches are that of `findAll`, and `matches` is true if there is any match.
func findPatterns(c *patternCase) {
	c.Error, c.Found = "", nil
	re, err := regexp.Compile(c.Pattern)
	if err != nil {
		c.Error = err.Error()
		return
	}
	for _, subject := range c.Subjects {
		c.Found = append(c.Found, re.FindAllString(subject, -1))
	}
}
