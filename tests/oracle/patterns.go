package main

import "regexp"

// A regular expression with texts to look through, and what Go finds.
type patternCase struct {
	Pattern  string   `json:"pattern"`
	Subjects []string `json:"subjects"`
	// Why it is no pattern; empty where it is one.
	Error string `json:"error,omitempty"`
	// For each subject all matches, in order; null where there are none.
	Found [][]string `json:"found,omitempty"`
}

// findPatterns answers a case. What is found first is what `find` of CEL gives, all is what
// `findAll` gives, and `matches` is whether anything is found.
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
